//! The era without sessions: headers that repeat the message, cancellation by closing the connection, and no DELETE.

use crate::host::{Connect, INITIALIZE, INITIALIZED, scene};
use crate::upstream::{Sessions, Upstream, initialized};

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{META}}}}}"#)
}

fn answer(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#)
}

#[test]
fn headers_repeat_the_message() {
    let upstream = Upstream::start(|seen, talk| {
        match seen.rpc().as_str() {
        "tools/list" => talk.json(
            r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}"#,
        ),
        _ => talk.json(answer(seen.field("id").as_u64().unwrap_or_default() as u32)),
    }
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    let lines = [
        modern(1, "server/discover", ""),
        modern(2, "tools/list", ""),
        modern(3, "tools/call", r#""name":"sql","arguments":{"region":"größe"},"#),
        modern(4, "resources/read", r#""uri":"file:///a b","#),
    ];
    for line in &lines {
        connect.send(line);
        connect.next();
    }
    connect.close();
    assert_eq!(connect.code(), Some(0));
    let seen = upstream.seen();
    assert_eq!(seen.iter().map(|seen| seen.text()).collect::<Vec<_>>(), lines);
    let headers = |name: &str| seen.iter().map(|seen| seen.header(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(headers("mcp-protocol-version"), ["2026-07-28"; 4]);
    assert_eq!(headers("mcp-method"), ["server/discover", "tools/list", "tools/call", "resources/read"]);
    assert_eq!(headers("mcp-name"), ["", "", "sql", "file:///a b"]);
    assert_eq!(headers("mcp-param-region"), ["", "", "=?base64?Z3LDtsOfZQ==?=", ""]);
    assert_eq!(headers("mcp-session-id"), [""; 4]);
    // No session, no keeper, no DELETE, no GET.
    assert!(seen.iter().all(|seen| seen.method == "POST"));
}

/// Cancelling a request closes its connection; nothing is sent, and nothing is answered.
#[test]
fn a_cancellation_closes_the_connection() {
    let upstream = Upstream::start(|seen, talk| match seen.rpc().as_str() {
        "tools/call" => {
            talk.begin_stream();
            talk.event(
                "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n",
            );
            // If the client stays connected, the test's wait below fails.
            talk.wait_gone();
        }
        "slow" => talk.wait_gone(),
        _ => talk.json(answer(seen.field("id").as_u64().unwrap_or_default() as u32)),
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    connect.send(&modern(1, "tools/call", r#""name":"x","#));
    connect.wait("progress");
    connect.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    connect.send(&modern(2, "slow", ""));
    upstream.wait_count("POST", 2);
    connect.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    // A request that was answered before has no connection to close. Its cancellation is not sent either.
    connect.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    connect.send(&modern(3, "ping", ""));
    assert_eq!(connect.next(), answer(3));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(connect.is_silent());
    let methods: Vec<String> = upstream.seen().iter().map(|seen| seen.rpc()).collect();
    assert_eq!(methods, ["tools/call", "slow", "ping"]);
}

/// A subscription stays open, does not delay the exit, and ends with its connection.
#[test]
fn a_subscription_ends_with_its_connection() {
    let (gone, left) = std::sync::mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "subscriptions/listen" => {
            talk.begin_stream();
            talk.event("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n");
            talk.wait_gone();
            let _ = gone.lock().expect("no thread panics").send(());
        }
        _ => talk.json(answer(seen.field("id").as_u64().unwrap_or_default() as u32)),
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &["--grace", "1h", &upstream.url()]);
    connect.send(&modern(1, "subscriptions/listen", ""));
    connect.wait("acknowledged");
    connect.send(&modern(2, "ping", ""));
    assert_eq!(connect.next(), answer(2));
    // Not even a long grace waits for it.
    connect.close();
    assert_eq!(connect.code(), Some(0));
    left.recv_timeout(testkit::wait::LIMIT).expect("the connection is closed");
}

/// A broken modern stream cannot be resumed.
#[test]
fn a_stream_that_is_cut_is_an_error() {
    let upstream = Upstream::start(|_, talk| {
        talk.begin_stream();
        talk.event("id: 1\nretry: 1\ndata:\n\n");
        talk.cut();
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    connect.send(&modern(1, "tools/call", r#""name":"x","#));
    assert!(connect.next().contains(r#""id":1,"error":{"code":-32000"#));
    assert_eq!(upstream.of("GET").len(), 0);
}

/// A host that probes a legacy server gets the server's own refusal, falls back, and opens a session.
#[test]
fn a_probe_of_a_legacy_server_is_answered_so_that_the_host_falls_back() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "server/discover" => talk.answer(
            400,
            &[("Content-Type", "application/json")],
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
        ),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    connect.send(&modern(1, "server/discover", ""));
    assert_eq!(
        connect.next(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#
    );
    connect.send(INITIALIZE);
    assert_eq!(connect.next(), initialized(&0.into()));
    connect.send(INITIALIZED);
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
    assert_eq!(upstream.seen()[2].header("mcp-session-id"), "session-1");
    assert_eq!(upstream.seen()[2].header("mcp-protocol-version"), "2025-11-25");
}

/// The upstream's own error for this request is passed unchanged.
#[test]
fn a_modern_refusal_is_passed_unchanged() {
    let error =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"]}} }"#;
    let upstream = Upstream::start(move |_, talk| talk.answer(400, &[("Content-Type", "application/json")], error));
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    connect.send(&modern(1, "server/discover", ""));
    assert_eq!(connect.next(), error);
}
