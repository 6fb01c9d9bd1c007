//! Event streams of legacy servers: the server's own stream, the streams of requests, and their resumption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::host::{Connect, call, scene};
use crate::upstream::{Seen, Sessions, Talk, Upstream};

const NOTICE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"n":"#;

fn notice(number: usize) -> String {
    format!("{NOTICE}{number}}}}}")
}

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

/// A server that also answers GET.
fn start(
    get: impl Fn(&Seen, &mut Talk, usize) + Send + Sync + 'static,
    post: impl Fn(&Seen, &mut Talk) -> bool + Send + Sync + 'static,
) -> Upstream {
    let (sessions, gets) = (Sessions::default(), AtomicUsize::new(0));
    Upstream::start(move |seen, talk| match seen.method.as_str() {
        "GET" => get(seen, talk, gets.fetch_add(1, Ordering::SeqCst)),
        "POST" if post(seen, talk) => {}
        _ => sessions.serve(seen, talk),
    })
}

/// The server sends messages by itself, breaks the stream off, and leash resumes it.
#[test]
fn broken_stream_of_the_server_is_resumed() {
    let upstream = start(
        |_, talk, number| {
            talk.begin_stream();
            talk.event("retry: 1\n\n: hello\n\n");
            talk.event(&event(&format!("e{number}"), &notice(number)));
            match number {
                0 => talk.cut(),
                1 => talk.end_stream(),
                _ => talk.wait_gone(),
            }
        },
        |_, _| false,
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for number in 0..3 {
        assert_eq!(connect.next(), notice(number));
    }
    upstream.wait_count("GET", 3);
    let gets = upstream.of("GET");
    let asked: Vec<&str> = gets.iter().map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(asked, ["", "e0", "e1"]);
    for seen in &gets {
        assert_eq!(seen.header("accept"), "text/event-stream");
        assert_eq!(seen.header("mcp-session-id"), "session-1");
        assert_eq!(seen.header("mcp-protocol-version"), "2025-11-25");
    }
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
}

/// leash does not ask a server without its own stream again. Express answers 404 if there is no route for GET: that
/// says nothing about the session, because the server knows it for POST.
#[test]
fn server_without_a_stream_is_not_asked_again() {
    for (status, text) in [(405, ""), (404, ""), (404, "<pre>Cannot GET /mcp</pre>")] {
        let upstream = start(move |_, talk, _| talk.answer(status, &[], text), |_, _| false);
        let scene = scene();
        let mut connect = Connect::open(&scene, &[&upstream.url()]);
        for id in 1..20 {
            connect.send(&call(id));
            connect.next();
        }
        assert_eq!(upstream.of("GET").len(), 1, "{status} {text}");
        assert_eq!(scene.stderr(), "");
    }
}

/// A request of the server, and the host's answer.
#[test]
fn requests_of_the_server_are_answered_by_the_host() {
    let upstream = start(
        |_, talk, _| {
            talk.begin_stream();
            talk.event("data: {\"jsonrpc\":\"2.0\",\"id\":\"s1\",\"method\":\"roots/list\"}\n\n");
            talk.wait_gone();
        },
        |_, _| false,
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":"s1","method":"roots/list"}"#);
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{"roots":[]}}"#;
    connect.send(answer);
    upstream.wait("the answer", |seen| seen.iter().any(|seen| seen.text() == answer).then_some(()));
}

/// SEP-1699: the server closes the connection after a priming event and is polled for the answer.
#[test]
fn a_stream_that_is_closed_after_its_priming_event_is_polled() {
    let upstream = start(
        |seen, talk, _| match seen.header("last-event-id") {
            "" => talk.answer(405, &[], ""),
            "p0" => {
                talk.begin_stream();
                talk.event(&format!("retry: 2\n{}", event("p1", &notice(1))));
                talk.end_stream();
            }
            _ => {
                talk.begin_stream();
                talk.event(&event("p2", r#"{"jsonrpc":"2.0","id":1,"result":{"late":true}}"#));
                talk.end_stream();
            }
        },
        |seen, talk| {
            if seen.rpc() != "tools/call" {
                return false;
            }
            talk.begin_stream();
            talk.event("retry: 1\nid: p0\ndata:\n\n");
            talk.end_stream();
            true
        },
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), notice(1));
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":1,"result":{"late":true}}"#);
    let asked: Vec<String> = upstream.of("GET").iter().map(|seen| seen.header("last-event-id").to_owned()).collect();
    assert_eq!(asked, ["", "p0", "p1"]);
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(connect.is_silent());
}

/// The network fails in the middle of an answer.
#[test]
fn cut_stream_of_a_request_is_resumed() {
    let upstream = start(
        |seen, talk, number| match (seen.header("last-event-id"), number) {
            ("", _) => talk.answer(405, &[], ""),
            // A temporary failure: the server comes back.
            ("7", 1) => talk.answer(503, &[], ""),
            ("7", 2) => talk.cut(),
            _ => {
                talk.begin_stream();
                talk.event(&event("8", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
                talk.end_stream();
            }
        },
        |seen, talk| {
            if seen.rpc() != "tools/call" {
                return false;
            }
            talk.begin_stream();
            talk.event(&format!("retry: 1\n{}", event("7", &notice(1))));
            talk.event("id: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"res");
            talk.cut();
            true
        },
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), notice(1));
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(connect.is_silent());
}

/// Without event ids a stream cannot be resumed.
#[test]
fn a_stream_without_ids_that_is_cut_is_an_error() {
    let upstream = start(
        |_, talk, _| talk.answer(405, &[], ""),
        |seen, talk| {
            if seen.rpc() != "tools/call" {
                return false;
            }
            talk.begin_stream();
            talk.event(&format!("data: {}\n\n", notice(1)));
            talk.cut();
            true
        },
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), notice(1));
    assert!(connect.next().starts_with(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the connection to the upstream server broke"#
    ));
    assert_eq!(upstream.of("GET").len(), 1);
}

/// Some servers accept a request and answer it on their own stream.
#[test]
fn an_answer_may_come_on_the_servers_own_stream() {
    let (asked, waiting) = std::sync::mpsc::channel();
    let (asked, waiting) = (std::sync::Mutex::new(asked), std::sync::Mutex::new(waiting));
    let upstream = start(
        move |_, talk, _| {
            talk.begin_stream();
            talk.event(": open\n\n");
            if waiting.lock().expect("no thread panics").recv().is_ok() {
                talk.event("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
            }
            talk.wait_gone();
        },
        move |seen, talk| {
            if seen.rpc() != "tools/call" {
                return false;
            }
            talk.accept();
            let _ = asked.lock().expect("no thread panics").send(());
            true
        },
    );
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    upstream.wait_count("GET", 1);
    connect.send(&call(1));
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
}

/// The server's own stream shows the loss before any request does.
#[test]
fn a_lost_session_is_noticed_by_the_listener() {
    let sessions = Arc::new(Sessions::default());
    let serving = Arc::clone(&sessions);
    let upstream = Upstream::start(move |seen, talk| {
        let known = serving.open().iter().any(|open| open == seen.header("mcp-session-id"));
        if seen.method != "GET" || !known {
            return serving.serve(seen, talk);
        }
        talk.begin_stream();
        talk.event(&format!("retry: 1\ndata: {}\n\n", notice(seen.header("mcp-session-id").len())));
        if seen.header("mcp-session-id") == "session-1" {
            // The server loses its sessions at this moment.
            serving.forget();
            return talk.cut();
        }
        talk.wait_gone();
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    assert_eq!(connect.next(), notice(9));
    assert_eq!(connect.next(), notice(9));
    assert_eq!(sessions.open(), ["session-2"]);
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(sessions.open(), Vec::<String>::new());
}
