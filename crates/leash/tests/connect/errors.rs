//! Whatever fault the upstream has: every request is answered, the host gets nothing but protocol messages, and leash
//! lives.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;

use crate::host::{Connect, INITIALIZE, INITIALIZED, call, scene};
use crate::upstream::{Sessions, Upstream, result};

/// The error in a line.
fn error(line: &str) -> (Value, i64, String) {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|fault| panic!("not JSON ({fault}): {line}"));
    let error = &message["error"];
    let text = error["message"].as_str().unwrap_or_default().to_owned();
    (message["id"].clone(), error["code"].as_i64().unwrap_or_default(), text)
}

#[test]
fn missing_server_is_reported_for_each_request() {
    let address = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.local_addr().expect("an address")
    };
    let scene = scene();
    let url = format!("http://{address}/mcp");
    let mut connect = Connect::start(&scene, &[&url]);
    connect.send(INITIALIZE);
    let (id, code, text) = error(&connect.next());
    assert_eq!((id, code), (0.into(), -32000));
    assert_eq!(text, format!("cannot reach {url}: connection refused; is the server running?"));
    connect.send(INITIALIZED);
    connect.send(INITIALIZED);
    connect.send(r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#);
    assert_eq!(error(&connect.next()).0, "q");
    // A server starts later, and leash need not be started again.
    let sessions = Sessions::default();
    let upstream = Upstream::start_at(address, move |seen, talk| sessions.serve(seen, talk));
    connect.send(INITIALIZE);
    assert!(connect.next().contains("protocolVersion"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
    // Reported once, however many notifications were lost.
    assert_eq!(scene.stderr().matches("was not delivered").count(), 1, "{}", scene.stderr());
}

#[test]
fn credentials_are_missing_or_right() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match (seen.header("authorization"), seen.header("x-other")) {
        ("Bearer s3cret", "1 2") => sessions.serve(seen, talk),
        _ => talk.answer(401, &[("WWW-Authenticate", "Bearer")], ""),
    });
    let mut scene = scene();
    let url = upstream.url();
    let mut connect = Connect::start(&scene, &[&url]);
    connect.send(INITIALIZE);
    let (id, code, text) = error(&connect.next());
    assert_eq!((id, code), (0.into(), -32000));
    assert_eq!(
        text,
        "the upstream server answered 401 Unauthorized: pass credentials with `--bearer-env` or `--header`"
    );
    drop(connect);

    scene.set_env("TOKEN", "s3cret");
    let mut connect = Connect::open(&scene, &["--bearer-env", "TOKEN", "--header", "X-Other:  1 2 ", &url]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-1"));
    // The keeper has them, but not in its environment.
    let keepers = testkit::process::children(connect.pid());
    assert!(!keepers.is_empty(), "connect has a keeper");
    for keeper in keepers {
        let environment = std::fs::read(format!("/proc/{}/environ", keeper.pid.as_raw_nonzero())).expect("it lives");
        assert!(!String::from_utf8_lossy(&environment).contains("s3cret"), "{keeper}");
    }
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(!scene.stderr().contains("s3cret"), "{}", scene.stderr());
}

/// A failed request does not affect the others.
#[test]
fn statuses_become_errors() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().parse::<u16>() {
        Ok(status) => talk.answer(status, &[("Location", "http://192.0.2.1/")], "<html>\n</html>"),
        Err(_) => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for status in [400, 401, 403, 405, 406, 413, 415, 429, 500, 502, 503, 307, 301] {
        connect.send(&format!(r#"{{"jsonrpc":"2.0","id":{status},"method":"{status}"}}"#));
        let (id, code, text) = error(&connect.next());
        assert_eq!((id, code), (status.into(), -32000));
        assert!(text.starts_with(&format!("the upstream server answered {status}")), "{text}");
    }
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-1"));
}

#[test]
fn garbage_does_not_reach_the_host() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "html" => talk.answer(200, &[("Content-Type", "text/html")], "<html>login</html>"),
        "half" => talk.json(r#"{"jsonrpc":"2.0","id":2,"resu"#),
        "other" => talk.json(r#"{"hello":"world"}"#),
        "log" => {
            talk.begin_stream();
            talk.event("data: starting up...\n\ndata: {\"level\":\"info\"}\n\n");
            talk.event("data: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n\ndata: bye\n\n");
            talk.end_stream();
        }
        "empty" => talk.json(""),
        "stranger" => talk.json(r#"{"jsonrpc":"2.0","id":"somebody else","result":{}}"#),
        "nothing" => {
            talk.raw(b"not even HTTP\r\n\r\n");
            talk.cut();
        }
        "cut" => {
            talk.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"");
            talk.cut();
        }
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    let mut ask = |id: u32, method: &str| {
        connect.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#));
        connect.next()
    };
    let garbage = "the upstream server answered with something that is not MCP; check the URL";
    for (id, method) in [(1, "html"), (2, "half"), (3, "other")] {
        assert_eq!(error(&ask(id, method)), (id.into(), -32000, garbage.to_owned()));
    }
    assert_eq!(ask(4, "log"), r#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
    let nothing = "the upstream server accepted the request, but did not answer it; look at the server's log";
    assert_eq!(error(&ask(5, "empty")), (5.into(), -32000, nothing.to_owned()));
    assert_eq!(error(&ask(7, "nothing")).0, 7);
    let cut = "the connection to the upstream server broke before the response; the request may have been carried out: look before \
               you repeat it";
    assert_eq!(error(&ask(8, "cut")), (8.into(), -32000, cut.to_owned()));
    // An answer with an unknown id is passed on, and the request gets an error because it got no answer.
    assert_eq!(ask(6, "stranger"), r#"{"jsonrpc":"2.0","id":"somebody else","result":{}}"#);
    assert_eq!(error(&connect.next()), (6.into(), -32000, nothing.to_owned()));
    assert_eq!(scene.stderr().matches("not MCP").count(), 1, "{}", scene.stderr());
}

/// leash answers lines of the host that are not JSON; the upstream judges the others.
#[test]
fn invalid_lines_of_the_host_are_answered() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.text().as_str() {
        "42" => talk.answer(
            400,
            &[("Content-Type", "application/json")],
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#,
        ),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for line in ["hello", "{", "{\"jsonrpc\":\"2.0\",}"] {
        connect.send(line);
        let (id, code, text) = error(&connect.next());
        assert_eq!((id, code), (Value::Null, -32700), "{line}");
        assert!(text.starts_with("Parse error"), "{text}");
    }
    connect.send("42");
    connect.send(&call(1));
    connect.wait(r#""id":1"#);
    let bodies: Vec<String> = upstream.of("POST").iter().map(|seen| seen.text()).collect();
    assert_eq!(bodies, [INITIALIZE, INITIALIZED, "42", &call(1)]);
}

/// leash follows a redirect within the server, for the session and for its end.
#[test]
fn a_redirect_of_the_same_origin_is_followed() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.path.as_str() {
        "/mcp" => talk.answer(307, &[("Location", "/mcp/")], ""),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-1"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    let paths: Vec<(String, String)> = upstream.seen().into_iter().map(|seen| (seen.method, seen.path)).collect();
    let asked = |method: &str, path: &str| (method.to_owned(), path.to_owned());
    assert_eq!(paths[..2], [asked("POST", "/mcp"), asked("POST", "/mcp/")]);
    assert!(paths[2..].iter().all(|(_, path)| path == "/mcp/"), "{paths:?}");
    assert_eq!(upstream.of("DELETE").len(), 1);
}

/// An answer that exceeds the line limit is dropped, and the request gets an error: a repeated request would get the
/// same answer.
#[test]
fn too_large_answer_becomes_an_error() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| {
        let large = || format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(17 * 1024 * 1024));
        match seen.rpc().as_str() {
            "whole" => talk.json(large()),
            "stream" => {
                talk.begin_stream();
                talk.event("retry: 1\nid: 1\ndata:\n\n");
                talk.event(&format!("id: 2\ndata: {}\n\n", large()));
                talk.end_stream();
            }
            _ => sessions.serve(seen, talk),
        }
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for method in ["whole", "stream"] {
        connect.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#));
        let text = "the upstream server's answer has more than 16777216 bytes, and leash dropped it; ask for less";
        assert_eq!(error(&connect.next()), (1.into(), -32000, text.to_owned()));
    }
    connect.send(&call(2));
    assert_eq!(connect.next(), result(&2.into(), "session-1"));
}
