//! Lines go upstream in the order of the host, and only a limited number at once.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};

use testkit::wait::LIMIT;

use crate::host::{Connect, INITIALIZE, INITIALIZED, call, scene};
use crate::upstream::{Sessions, Upstream, initialized};

/// A gate that holds answers back.
#[derive(Default)]
pub(crate) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub(crate) fn wait(&self) {
        let open = self.0.lock().expect("no thread panics");
        drop(self.1.wait_timeout_while(open, LIMIT, |open| !*open).expect("no thread panics"));
    }

    pub(crate) fn open(&self) {
        *self.0.lock().expect("no thread panics") = true;
        self.1.notify_all();
    }
}

/// `initialize` is answered before any other line is sent, and a notification is accepted before the next line is sent.
#[test]
fn the_handshake_is_not_overtaken() {
    let (gates, sessions) = (Arc::new([Gate::default(), Gate::default()]), Sessions::default());
    let holding = Arc::clone(&gates);
    let upstream = Upstream::start(move |seen, talk| {
        match seen.rpc().as_str() {
            "initialize" => holding[0].wait(),
            "notifications/initialized" => holding[1].wait(),
            _ => {}
        }
        sessions.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &[&upstream.url()]);
    connect.write(format!("{INITIALIZE}\n{INITIALIZED}\n{}\n", call(1)).as_bytes());
    upstream.wait_count("POST", 1);
    gates[0].open();
    assert_eq!(connect.next(), initialized(&0.into()));
    upstream.wait_count("POST", 2);
    gates[1].open();
    connect.wait(r#""id":1"#);
    let methods: Vec<String> = upstream.of("POST").iter().map(|seen| seen.rpc()).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call"]);
    let posted = upstream.of("POST");
    assert_eq!(posted[0].header("mcp-session-id"), "");
    assert_eq!(posted[0].header("mcp-protocol-version"), "");
    for seen in &posted[1..] {
        assert_eq!(seen.header("mcp-session-id"), "session-1");
        assert_eq!(seen.header("mcp-protocol-version"), "2025-11-25");
        assert_eq!(seen.header("content-type"), "application/json");
        assert_eq!(seen.header("accept"), "application/json, text/event-stream");
    }
}

/// A slow request does not delay the next one, and answers are passed on as they arrive.
#[test]
fn answers_come_as_they_are_ready() {
    let (gate, sessions) = (Arc::new(Gate::default()), Sessions::default());
    let holding = Arc::clone(&gate);
    let upstream = Upstream::start(move |seen, talk| {
        if seen.field("id") == 1 {
            holding.wait();
        }
        sessions.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    connect.send(&call(2));
    assert!(connect.next().contains(r#""id":2"#));
    gate.open();
    assert!(connect.next().contains(r#""id":1"#));
}

/// At the limit of unanswered requests, the host's answers and cancellations still pass: the server may wait for them.
#[test]
fn responses_pass_requests_that_wait() {
    const MOST: u32 = 64;
    let (gate, sessions) = (Arc::new(Gate::default()), Sessions::default());
    let holding = Arc::clone(&gate);
    let upstream = Upstream::start(move |seen, talk| {
        if seen.rpc() == "tools/call" {
            holding.wait();
        }
        sessions.serve(seen, talk);
        // The server has got the answer that it waits for.
        if seen.text().contains("pressed") {
            holding.open();
        }
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for id in 1..=MOST + 10 {
        connect.send(&call(id));
    }
    let calls = |upstream: &Upstream| upstream.of("POST").iter().filter(|seen| seen.rpc() == "tools/call").count();
    upstream.wait_count("POST", 2 + MOST as usize);
    connect.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":74}}"#);
    connect.send(r#"{"jsonrpc":"2.0","id":"elicit","result":{"action":"pressed"}}"#);
    for id in 1..MOST + 10 {
        connect.wait(&format!(r#""id":{id},"#));
    }
    connect.close();
    assert_eq!(connect.code(), Some(0));
    // The last request was cancelled before it was sent, so neither it nor the cancellation is sent.
    assert_eq!(calls(&upstream), MOST as usize + 9);
    assert!(upstream.of("POST").iter().all(|seen| seen.rpc() != "notifications/cancelled"));
    assert!(connect.is_silent());
}

/// If a host does not read, leash stops reading from the upstream: memory stays bounded, and nothing is lost.
#[test]
fn a_host_that_does_not_read_stops_the_upstream() {
    let sessions = Sessions::default();
    let (sent, sending) = channel();
    let sent = Mutex::new(sent);
    let text = "x".repeat(64 * 1024);
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "flood" => {
            talk.begin_stream();
            for number in 0..512 {
                talk.event(&format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{\"n\":{number},\"x\":\"{text}\"}}}}\n\n"
                ));
                let _ = sent.lock().expect("no thread panics").send(number);
            }
            talk.event("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
            talk.end_stream();
        }
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(r#"{"jsonrpc":"2.0","id":1,"method":"flood"}"#);
    // The server blocks long before all 32 MiB are sent: pipes and sockets hold a few.
    let stuck = std::iter::from_fn(|| sending.recv_timeout(std::time::Duration::from_secs(2)).ok()).last();
    assert!(stuck.is_some_and(|number| number < 400), "{stuck:?} were taken from the server and not from leash");
    for number in 0..512 {
        assert!(connect.next().contains(&format!(r#""n":{number},"#)));
    }
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
}

/// A cancellation in a legacy session is passed on. An answer that arrives all the same is passed on too.
#[test]
fn legacy_cancellations_are_passed_on() {
    let (gate, sessions) = (Arc::new(Gate::default()), Sessions::default());
    let holding = Arc::clone(&gate);
    let upstream = Upstream::start(move |seen, talk| {
        match seen.rpc().as_str() {
            "tools/call" => holding.wait(),
            "notifications/cancelled" => holding.open(),
            _ => {}
        }
        sessions.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    upstream.wait("the call", |seen| seen.iter().any(|seen| seen.text() == call(1)).then_some(()));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"no"}}"#;
    connect.send(cancel);
    upstream.wait("the cancellation", |seen| seen.iter().any(|seen| seen.text() == cancel).then_some(()));
    connect.wait(r#""id":1"#);
}

/// Many servers never answer a cancelled request, and leave its connection open. Such requests must not use up the
/// limit.
#[test]
fn cancelled_request_frees_its_slot() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "tools/call" => talk.wait_gone(),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for id in 1..=64 {
        connect.send(&call(id));
    }
    upstream.wait_count("POST", 2 + 64);
    connect.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    connect.send(r#"{"jsonrpc":"2.0","id":100,"method":"ping"}"#);
    assert!(connect.next().contains(r#""id":100"#));
}
