//! Ambiguous requests, and bodies that are not text, too deep or too large.

use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::or_skip;
use testkit::puppet::Theatre;
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::user::Who;

use super::{LIST, MIB, Rest, end, open, post_head, sent};

/// A server without sessions that echoes the body as it understood it.
fn mirror() -> Upstream {
    Upstream::start(|seen, wire| wire.answer("200 OK", &[("Content-Type", "application/json")], &seen.body))
}

/// Two servers that disagree on the end of a request can be made to see different requests. Whatever lengths a client
/// sends, the server behind leash gets one unambiguous length.
#[test]
fn contradicting_lengths_are_refused_or_resolved() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = mirror();
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let (length, hidden) = (LIST.len(), "GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let chunked = format!("{length:x}\r\n{LIST}\r\n0\r\n\r\n");
    let cases: [(&str, String, String); 9] = [
        ("both", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n".to_owned(), chunked.clone()),
        (
            "both, the other way round",
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n".to_owned(),
            chunked.clone(),
        ),
        ("two lengths", format!("Content-Length: {length}\r\nContent-Length: 4\r\n"), format!("{LIST}{hidden}")),
        ("a list of lengths", format!("Content-Length: {length}, 4\r\n"), LIST.to_owned()),
        ("a signed length", format!("Content-Length: +{length}\r\n"), LIST.to_owned()),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n".to_owned(), chunked.clone()),
        ("a coding after chunked", "Transfer-Encoding: chunked, identity\r\n".to_owned(), chunked.clone()),
        ("a blank before the colon", "Transfer-Encoding : chunked\r\n".to_owned(), chunked.clone()),
        ("a folded line", format!("Content-Length:\r\n {length}\r\n"), LIST.to_owned()),
    ];
    for (name, headers, body) in cases {
        upstream.forget();
        let mut client = sent(&gateway, format!("{}{headers}\r\n{body}", post_head(None)).as_bytes());
        let reply = client.reply().expect("an answer");
        let seen = upstream.seen();
        match reply.status {
            200 => {
                assert_eq!(seen.len(), 1, "{name}");
                assert_eq!((&*seen[0].body, &*reply.body), (LIST.as_bytes(), LIST.as_bytes()), "{name}");
                assert_eq!(seen[0].header("content-length"), Some(&*length.to_string()), "{name}");
                assert_eq!(seen[0].header("transfer-encoding"), None, "{name}");
            }
            400 => assert!(seen.is_empty(), "{name}: {seen:?}"),
            other => panic!("{name}: {other}"),
        }
        assert!(upstream.seen().iter().all(|seen| !seen.path.contains("hidden")), "{name}");
    }
    assert_eq!(gateway.ask("GET", "/healthz", &[], b"").status, 200);
}

/// Headers of one connection are not passed to the other.
#[test]
fn headers_of_the_connection_stay_on_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = mirror();
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let extra = "Connection: keep-alive, x-secret\r\nX-Secret: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nKeep-Alive: 5\r\nX-Kept: 1\r\n";
    let request = format!("{}{extra}Content-Length: {}\r\n\r\n{LIST}", post_head(None), LIST.len());
    assert_eq!(sent(&gateway, request.as_bytes()).reply().expect("an answer").status, 200);
    let seen = upstream.take();
    assert_eq!(seen.header("x-kept"), Some("1"));
    for name in ["connection", "x-secret", "te", "upgrade", "keep-alive"] {
        assert_eq!(seen.header(name), None, "{name}: {seen:?}");
    }
}

#[test]
fn bodies_that_are_not_text_are_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = mirror();
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let stdio = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 9] = [
        b"",
        b"\xff\xfe",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xc3\x28\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xed\xa0\x80\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\0b\"}",
        b"\0",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"x\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}{}",
        deep.as_bytes(),
    ];
    for gateway in [&gateway, &stdio] {
        let mut client = gateway.connect();
        for body in bodies {
            let reply = client.ask("POST", "/x/mcp", &POST, body);
            assert_eq!(reply.status, 400, "{:?}", String::from_utf8_lossy(body));
            assert_eq!(reply.json()["error"]["code"], -32700, "{}", reply.text());
        }
        // A session id that is not text is unknown.
        let request =
            format!("{}Mcp-Session-Id: \u{e9}\r\nContent-Length: {}\r\n\r\n{LIST}", post_head(None), LIST.len());
        assert_eq!(sent(gateway, request.as_bytes()).reply().expect("an answer").status, 404);
        // NUL is not allowed in a header.
        let request = format!("{}X: a\0b\r\nContent-Length: {}\r\n\r\n{LIST}", post_head(None), LIST.len());
        assert_eq!(sent(gateway, request.as_bytes()).reply().expect("an answer").status, 400);
    }
    assert!(upstream.seen().is_empty());
}

/// 100,000 levels, in an otherwise valid message.
fn deep(method: &str) -> String {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"deep":{open}{close},{meta}}}}}"#)
}

#[test]
fn deeply_nested_message_passes() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = mirror();
    let http = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let body = deep("x/y");
    let reply = http.post("x", None, &body);
    assert!(reply.status == 200 && reply.body == body.as_bytes());

    let theatre = Theatre::open(&scene);
    let stdio = Gateway::single(&scene, &[], &theatre.words(&scene, "polite"));
    let mut client = stdio.connect();
    client.send("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes()).expect("it is sent");
    let mut puppet = theatre.next();
    puppet.initialize("2025-06-18");
    let opened = client.reply().expect("an answer");
    let session = opened.header("mcp-session-id").expect("a session");
    client
        .send("POST", "/x/mcp", &[POST[0], POST[1], ("mcp-session-id", session)], body.as_bytes())
        .expect("it is sent");
    assert!(puppet.hear() == body.as_bytes());
    let answer = body.replace("\"params\":", "\"result\":").replace("\"method\":\"x/y\",", "");
    puppet.say(&answer);
    assert!(client.reply().expect("an answer").body == answer.as_bytes());

    // The same in the modern era, where leash reads `_meta` and sends its own `server/discover` first.
    let headers = [POST[0], POST[1], ("mcp-protocol-version", "2026-07-28"), ("mcp-method", "x/y")];
    client.send("POST", "/x/mcp", &headers, body.as_bytes()).expect("it is sent");
    let mut modern = theatre.next();
    let question = modern.hear_text();
    assert!(question.contains("server/discover"), "{question}");
    modern.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let line = modern.hear_text();
    assert_eq!(line.len(), body.len());
    modern.say(answer.replace("\"id\":1", "\"id\":2"));
    assert!(client.reply().expect("an answer").body == answer.as_bytes());
}

/// Just below the size limit, in `initialize`, of which leash keeps much.
#[test]
fn an_initialize_of_four_mebibytes_is_served_and_forgotten() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let rest = Rest::of(&gateway, &["x"]);
    let small = initialize("2025-06-18");
    let body = small.replace(
        "\"capabilities\"",
        &format!("\"x\":\"{}\",\"capabilities\"", "y".repeat(4_194_304 - small.len() - 7)),
    );
    assert_eq!(body.len(), 4_194_304);
    for _ in 0..5 {
        let reply = gateway.post("x", None, &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        end(&gateway, "x", reply.header("mcp-session-id").expect("a session"));
    }
    let large = format!("{}Content-Length: {}\r\n\r\n{body} ", post_head(None), body.len() + 1);
    assert_eq!(sent(&gateway, large.as_bytes()).head().expect("an answer").status, 413);
    rest.again(&gateway, &["x"], 2 * MIB);
    let session = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
}
