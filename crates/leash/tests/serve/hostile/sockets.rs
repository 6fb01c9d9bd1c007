//! Sockets that are half closed, reset, or used in unusual ways.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{LIST, MIB, Rest, end, open, post_head, sent};

fn gateway(scene: &Scene) -> Gateway {
    Gateway::single(scene, &[], &scene.tree("polite", ["--mcp"]))
}

/// A call that takes a while.
const SLEEP: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":300}}}"#;

/// A partial request and nothing more.
#[test]
fn partial_request_reaches_no_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let rest = Rest::of(&gateway, &["x"]);
    let opened = gateway.metric("leash_sessions_opened_total{server=\"x\"}");
    let body = initialize("2025-06-18");
    let whole = format!("{}Content-Length: {}\r\n\r\n{body}", post_head(None), body.len());
    // Cut in the head, just after it, in the body, and one byte before its end.
    for length in [10, whole.len() - body.len(), whole.len() - 40, whole.len() - 1] {
        let mut client = sent(&gateway, &whole.as_bytes()[..length]);
        client.socket().shutdown(Shutdown::Write).expect("it is open");
        // Refused or cut off; never taken for a whole request.
        let reply = client.reply();
        assert!(reply.as_ref().is_err() || reply.is_ok_and(|reply| reply.status == 400), "{length}");
        drop(sent(&gateway, &whole.as_bytes()[..length]));
        let reset = sent(&gateway, &whole.as_bytes()[..length]);
        rustix::net::connect_unspec(reset.socket()).expect("it is reset");
    }
    assert_eq!(gateway.metric("leash_sessions_opened_total{server=\"x\"}"), opened);
    rest.again(&gateway, &["x"], 2 * MIB);
}

/// `nc -N` and some clients close their sending side after their last request, and wait for the answer.
#[test]
fn half_closed_client_gets_its_answer() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let rest = Rest::of(&gateway, &["x"]);
    let ask = |session: Option<&str>, body: &str| {
        let whole = format!("{}Content-Length: {}\r\n\r\n{body}", post_head(session), body.len());
        let client = sent(&gateway, whole.as_bytes());
        client.socket().shutdown(Shutdown::Write).expect("it is open");
        client
    };
    let mut opens = ask(None, &initialize("2025-06-18"));
    let opened = opens.reply().expect("an answer to initialize");
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    let mut calls = ask(Some(&session), SLEEP);
    let answer = calls.reply().expect("an answer to a call");
    assert_eq!((answer.status, &answer.json()["id"]), (200, &9.into()), "{}", answer.text());
    // No answer is pending any more: the gateway closes the connection at once, and does not wait for another request.
    let mut after = Vec::new();
    assert_eq!(calls.into_socket().read_to_end(&mut after).expect("an end"), 0);
    // A listener that has closed its sending side still listens, and its slot is free as soon as it disconnects.
    let get = format!(
        "GET /x/mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
    );
    let mut listens = sent(&gateway, get.as_bytes());
    listens.socket().shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(listens.head().expect("an answer").status, 200);
    let log = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}"#;
    assert_eq!(gateway.post("x", Some(&session), log).status, 202);
    assert_eq!(sent(&gateway, get.as_bytes()).head().expect("an answer").status, 409, "it listens");
    end(&gateway, "x", &session);
    assert_eq!(listens.chunk().expect("an end of the stream"), None);
    drop(listens);
    rest.again(&gateway, &["x"], 2 * MIB);
}

/// Several requests in one write are answered in their order.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let rest = Rest::of(&gateway, &["x"]);
    let session = open(&gateway, "x");
    let mut all = Vec::new();
    let ids = 1..=50;
    for id in ids.clone() {
        let body = match id % 10 {
            0 => SLEEP.replace("\"id\":9", &format!("\"id\":{id}")).replace("300", "30"),
            _ => LIST.replace("\"id\":1", &format!("\"id\":{id}")),
        };
        all.extend(format!("{}Content-Length: {}\r\n\r\n{body}", post_head(Some(&session)), body.len()).into_bytes());
    }
    let mut client = sent(&gateway, &all);
    for id in ids {
        let reply = client.reply().expect("an answer");
        assert_eq!((reply.status, &reply.json()["id"]), (200, &id.into()), "{}", reply.text());
    }
    end(&gateway, "x", &session);
    drop(client);
    rest.again(&gateway, &["x"], 2 * MIB);
}

/// HTTP/1.0 has no chunks: a stream ends with its connection.
#[test]
fn http_1_0_is_understood() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let rest = Rest::of(&gateway, &["x"]);
    let whole = |bytes: &[u8]| {
        let client = sent(&gateway, bytes);
        let mut answer = String::new();
        client.socket().read_to_string(&mut answer).expect("an end");
        answer
    };
    let health = whole(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert!(health.starts_with("HTTP/1.0 200 ") && health.ends_with("\r\n\r\nok\n"), "{health}");
    // Without a Host header the gateway cannot check the host.
    assert!(whole(b"GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 403 "));
    let session = open(&gateway, "x");
    let call = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"log","arguments":{"count":3}}}"#;
    let head = post_head(Some(&session)).replace("HTTP/1.1", "HTTP/1.0");
    let streamed = whole(format!("{head}Content-Length: {}\r\n\r\n{call}", call.len()).as_bytes());
    assert!(streamed.starts_with("HTTP/1.0 200 "), "{streamed}");
    assert!(!streamed.to_ascii_lowercase().contains("chunked"), "{streamed}");
    assert_eq!(streamed.matches("\ndata: {").count(), 4, "{streamed}");
    end(&gateway, "x", &session);
    rest.again(&gateway, &["x"], 2 * MIB);
}

/// A client that sends `Expect: 100-continue` waits for the interim response before it sends its body.
#[test]
fn expect_100_continue_is_answered() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let body = initialize("2025-06-18");
    let head = format!("{}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", post_head(None), body.len());
    let mut client = sent(&gateway, head.as_bytes());
    assert_eq!(client.head().expect("a word").status, 100);
    client.socket().write_all(body.as_bytes()).expect("it is sent");
    assert_eq!(client.reply().expect("an answer").status, 200);
    // There is no interim response for a body that is refused anyway.
    let head = format!("{}Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", post_head(None));
    assert_eq!(sent(&gateway, head.as_bytes()).head().expect("an answer").status, 413);
}
