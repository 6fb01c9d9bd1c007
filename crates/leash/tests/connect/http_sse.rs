//! HTTP+SSE of 2024-11-05: detected, spoken, and reopened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::Value;
use testkit::leash::keeper;
use testkit::wait::LIMIT;

use crate::host::{Connect, INITIALIZE, INITIALIZED, call, scene};
use crate::upstream::{Seen, Talk, Upstream, initialized, result};

/// A server of HTTP+SSE.
#[derive(Default)]
struct HttpSseServer {
    streams: AtomicUsize,
    /// The stream that gets the answers to POSTs: the newest one.
    stream: Mutex<Option<Sender<Said>>>,
}

/// A message to a stream's thread.
enum Said {
    Event(String),
    Cut,
}

impl HttpSseServer {
    fn serve(&self, seen: &Seen, talk: &mut Talk) {
        match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", "/mcp") => self.listen(talk),
            ("POST", path) if path.starts_with("/post?session=") => {
                talk.answer(202, &[], "Accepted");
                self.answer(seen, path.trim_start_matches("/post?session="));
            }
            ("POST", _) => talk.answer(405, &[], "Method Not Allowed"),
            _ => talk.answer(404, &[], ""),
        }
    }

    fn listen(&self, talk: &mut Talk) {
        let (sender, said): (Sender<Said>, Receiver<Said>) = channel();
        let number = self.streams.fetch_add(1, Ordering::SeqCst) + 1;
        // Set before the client knows the POST endpoint: the client may be quick.
        *self.stream.lock().expect("no thread panics") = Some(sender);
        talk.begin_stream();
        talk.event(&format!("event: endpoint\ndata: /post?session=old-{number}\n\n"));
        for said in said {
            match said {
                Said::Event(event) => talk.event(&event),
                Said::Cut => return talk.cut(),
            }
        }
    }

    fn answer(&self, seen: &Seen, session: &str) {
        let id = seen.field("id");
        if id.is_null() {
            return;
        }
        let answer = match seen.rpc().as_str() {
            "initialize" => initialized(&id),
            "never" => return,
            _ => result(&id, session),
        };
        self.say(Said::Event(format!("event: message\ndata: {answer}\n\n")));
    }

    fn say(&self, said: Said) {
        if let Some(stream) = &*self.stream.lock().expect("no thread panics") {
            let _ = stream.send(said);
        }
    }
}

fn start() -> (Arc<HttpSseServer>, Upstream) {
    let server = Arc::new(HttpSseServer::default());
    let serving = Arc::clone(&server);
    (server, Upstream::start(move |seen, talk| serving.serve(seen, talk)))
}

#[test]
fn http_sse_is_detected_and_spoken() {
    let (server, upstream) = start();
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "old-1"));
    server.say(Said::Event("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n".to_owned()));
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    connect.close();
    assert_eq!(connect.code(), Some(0));
    let asked: Vec<String> =
        upstream.seen().iter().map(|seen| format!("{} {} {}", seen.method, seen.path, seen.rpc())).collect();
    assert_eq!(
        asked,
        [
            "POST /mcp initialize",
            "GET /mcp ",
            "POST /post?session=old-1 initialize",
            "POST /post?session=old-1 notifications/initialized",
            "POST /post?session=old-1 tools/call",
        ]
    );
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(
        (&receipt["holdings"][0]["how"], &receipt["holdings"][0]["fate"]),
        (&"closed".into(), &"gone".into()),
        "{receipt:#}"
    );
}

#[test]
fn http_sse_is_used_at_once_if_requested() {
    let (_, upstream) = start();
    let scene = scene();
    let mut connect = Connect::open(&scene, &["--transport", "sse", &upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "old-1"));
    assert_eq!(upstream.seen()[0].method, "GET");
}

#[test]
fn http_sse_is_not_tried_if_another_is_requested() {
    let (_, upstream) = start();
    let scene = scene();
    let mut connect = Connect::start(&scene, &["--transport", "http", &upstream.url()]);
    connect.send(INITIALIZE);
    assert!(connect.next().contains("the upstream server answered 405"));
    assert_eq!(upstream.of("GET").len(), 0);
}

/// The stream is the session: when it breaks, pending requests are lost, and leash opens a new session.
#[test]
fn a_stream_that_breaks_is_a_lost_session() {
    let (server, upstream) = start();
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(r#"{"jsonrpc":"2.0","id":1,"method":"never"}"#);
    upstream.wait("the request", |seen| seen.iter().any(|seen| seen.rpc() == "never").then_some(()));
    server.say(Said::Cut);
    assert_eq!(
        connect.next(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the upstream server closed the connection that was the session; repeat the request in a new session"}}"#
    );
    connect.send(&call(2));
    assert_eq!(connect.next(), result(&2.into(), "old-2"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(connect.is_silent());
    let again: Vec<String> =
        upstream.seen().iter().filter(|seen| seen.path.ends_with("old-2")).map(|seen| seen.text()).collect();
    assert_eq!(again, [INITIALIZE.to_owned(), INITIALIZED.to_owned(), call(2)]);
}

#[test]
fn without_revive_a_broken_stream_is_the_end() {
    let (server, upstream) = start();
    let scene = scene();
    let mut connect = Connect::open(&scene, &["--no-revive", &upstream.url()]);
    connect.send(&call(1));
    connect.next();
    server.say(Said::Cut);
    assert_eq!(connect.code(), Some(1));
    assert_eq!(upstream.of("GET").len(), 1);
}

/// leash does not send credentials to another origin that an upstream names.
#[test]
fn an_endpoint_of_another_origin_is_refused() {
    let upstream = Upstream::start(|seen, talk| match seen.method.as_str() {
        "GET" => {
            talk.begin_stream();
            talk.event("event: endpoint\ndata: http://192.0.2.1/post\n\n");
            talk.wait_gone();
        }
        _ => talk.answer(404, &[], ""),
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &["--transport", "sse", &upstream.url()]);
    connect.send(INITIALIZE);
    let told: Value = serde_json::from_str(&connect.next()).expect("JSON");
    assert_eq!(told["error"]["message"], "the upstream server did not name an endpoint of its own; check the URL");
}

/// The connection and the session die with leash; the keeper writes the receipt.
#[test]
fn a_killed_leash_has_a_receipt() {
    let (_, upstream) = start();
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    connect.next();
    let keeper = keeper(connect.pid());
    connect.signal(Signal::KILL);
    assert!(keeper.wait_gone(LIMIT));
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(
        (&receipt["holdings"][0]["how"], &receipt["ended_by"]),
        (&"closed".into(), &"keeper".into()),
        "{receipt:#}"
    );
}

/// The server is away for a while. Requests in that time get errors, and after that the session is opened again.
#[test]
fn an_outage_is_survived() {
    let (_, upstream) = start();
    let (address, url) = (upstream.address(), upstream.url());
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&url]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "old-1"));
    drop(upstream);
    for id in 2..6 {
        connect.send(&call(id));
        assert!(connect.next().contains(&format!(r#""id":{id},"error""#)));
    }
    let server = Arc::new(HttpSseServer::default());
    let serving = Arc::clone(&server);
    let again = Upstream::start_at(address, move |seen, talk| serving.serve(seen, talk));
    connect.send(&call(7));
    assert_eq!(connect.next(), result(&7.into(), "old-1"));
    assert_eq!(again.of("GET").len(), 1);
    connect.close();
    assert_eq!(connect.code(), Some(0));
}
