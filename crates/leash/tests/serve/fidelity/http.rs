//! An HTTP server behind the gateway: bodies, event streams, statuses and headers, in both directions.

use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::upstream::{Seen, Upstream, Wire};
use testkit::user::Who;

use super::odd::{self, Space};
use super::{Shared, check, same};

const SESSION: &str = "a-session_of.the~upstream";

/// An answer of the upstream, and its chunks.
#[derive(Clone, Debug)]
struct Planned {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
    /// The lengths of chunks. If there are none, the answer has a length.
    chunks: Vec<usize>,
    /// An unknown header.
    strange: String,
}

impl Planned {
    fn send(&self, wire: &mut Wire, session: Option<&str>) -> io::Result<()> {
        let mut headers = vec![("Content-Type", self.kind), ("X-Strange", &self.strange)];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        if self.chunks.is_empty() {
            return wire.answer(self.status, &headers, &self.body);
        }
        wire.begin(self.status, &headers)?;
        let mut rest = &self.body[..];
        for length in &self.chunks {
            let (chunk, after) = rest.split_at((*length).min(rest.len()));
            wire.chunk(chunk)?;
            rest = after;
        }
        wire.chunk(rest)?;
        wire.finish()
    }
}

/// An unusual event stream: all line endings, unknown fields, an event that never ends.
fn event_stream() -> BoxedStrategy<Vec<u8>> {
    let message = prop_oneof![odd::notification(Space::Line), odd::value(Space::Line)];
    let field = prop_oneof![
        4 => message.prop_map(|text| format!("data: {text}")),
        1 => select(vec!["data", "data:", "data: ", "data:  two", ":", ": comment", ":comment", "event: message", "event"])
            .prop_map(str::to_owned),
        1 => select(vec!["id: 7", "id", "id:\u{0}", "id: é", "retry: 10", "retry: never", "foo: bar", " data: x"])
            .prop_map(str::to_owned),
    ];
    let line = (field, select(vec!["\n", "\r\n", "\r"])).prop_map(|(field, end)| format!("{field}{end}"));
    let blank = select(vec!["\n", "\r\n", "\r", "\n\n\n", "\r\n\r\n"]).prop_map(str::to_owned);
    let text = vec(prop_oneof![3 => line, 2 => blank], 0..12).prop_map(|lines| lines.concat().into_bytes());
    let bom = any::<bool>().prop_map(|with| if with { "\u{feff}".as_bytes().to_vec() } else { Vec::new() });
    let noise = vec(any::<u8>(), 0..40);
    prop_oneof![6 => (bom, text).prop_map(|(bom, text)| [bom, text].concat()), 1 => noise].boxed()
}

fn planned(id: &str) -> BoxedStrategy<Planned> {
    let json = prop_oneof![
        odd::response(Space::Lines, id.to_owned()).prop_map(String::into_bytes),
        odd::value(Space::Lines).prop_map(String::into_bytes),
        vec(any::<u8>(), 0..40),
    ];
    let body = prop_oneof![
        json.prop_map(|body| ("application/json", body)),
        event_stream().prop_map(|body| ("text/event-stream", body)),
        event_stream().prop_map(|body| ("Text/Event-Stream; charset=utf-8", body)),
    ];
    let status = select(vec!["200 OK", "200 OK", "200 OK", "202 Accepted", "400 Bad Request", "500 Oh No", "299 Fine"]);
    (status, body, vec(1..200_usize, 0..6), "[!-~]([ -~]{0,20}[!-~])?")
        .prop_map(|(status, (kind, body), chunks, strange)| Planned { status, kind, body, chunks, strange })
        .boxed()
}

/// A message of the client, true if it names the session, and the answer.
#[derive(Clone, Debug)]
struct Case {
    body: String,
    in_session: bool,
    answer: Planned,
}

fn case() -> impl Strategy<Value = Case> {
    let parts = odd::id().prop_flat_map(|id| {
        let batch = vec(odd::notification(Space::Lines), 1..3);
        let body = prop_oneof![
            odd::request(Space::Lines, id.clone()),
            odd::notification(Space::Lines),
            odd::response(Space::Lines, id.clone()),
            batch.prop_flat_map(|texts| odd::array(Space::Lines, texts)),
            // Not a JSON-RPC message; the server decides about it.
            odd::value(Space::Lines),
        ];
        (body, any::<bool>(), planned(&id))
    });
    parts.prop_map(|(body, in_session, answer)| Case { body, in_session, answer })
}

/// The next answer of the upstream, and the data for its listeners.
struct Script {
    next: Mutex<Option<Planned>>,
    stream: Mutex<Receiver<Vec<u8>>>,
}

impl Script {
    fn answer(&self, seen: &Seen, wire: &mut Wire) -> io::Result<()> {
        let planned = self.next.lock().expect("no thread panics while it holds the lock").take();
        match (seen.method.as_str(), planned) {
            ("POST", Some(planned)) => {
                planned.send(wire, (seen.header("mcp-session-id")).filter(|_| seen.body.len().is_multiple_of(2)))
            }
            ("POST", None) => {
                let result = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
                let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", SESSION)];
                wire.answer("200 OK", &headers, result.as_bytes())
            }
            ("GET", _) => {
                wire.begin("200 OK", &[("Content-Type", "text/event-stream")])?;
                // After a failed case, a new listener waits until the old one is gone.
                let stream = self.stream.lock().expect("no thread panics while it holds the lock");
                stream.iter().try_for_each(|bytes| wire.chunk(&bytes))?;
                wire.finish()
            }
            _ => wire.answer("200 OK", &[], b""),
        }
    }
}

/// Dropped in this order: dropping `stream` makes the upstream end its own stream.
struct World {
    stream: Sender<Vec<u8>>,
    gateway: Gateway,
    upstream: Upstream,
    script: Arc<Script>,
}

fn world(scene: &Scene) -> Rc<World> {
    let (stream, said) = channel();
    let script = Arc::new(Script { next: Mutex::default(), stream: Mutex::new(said) });
    let shared = Arc::clone(&script);
    let upstream = Upstream::start(move |seen, wire| shared.answer(seen, wire));
    let gateway = Gateway::start(scene, ["--name", "x", "--url", &upstream.url()]);
    Rc::new(World { upstream, gateway, script, stream })
}

/// A session and its connection.
struct Stage {
    world: Rc<World>,
    client: Connection,
}

impl Stage {
    fn open(world: &Rc<World>) -> Self {
        let mut client = world.gateway.connect();
        let opened = client.ask("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes());
        assert_eq!(opened.header("mcp-session-id"), Some(SESSION), "{opened:?}");
        world.upstream.forget();
        Self { world: Rc::clone(world), client }
    }

    fn run(&mut self, case: &Case) -> TestCaseResult {
        *self.world.script.next.lock().expect("no thread panics while it holds the lock") = Some(case.answer.clone());
        let mut headers = POST.to_vec();
        headers.extend(case.in_session.then_some(("mcp-session-id", SESSION)));
        let reply = self.client.ask("POST", "/x/mcp", &headers, case.body.as_bytes());
        let seen = self.world.upstream.take();
        same(&case.body, &seen.body)?;
        prop_assert_eq!(seen.header("mcp-session-id"), case.in_session.then_some(SESSION));
        prop_assert_eq!(seen.header("content-type"), Some("application/json"));
        prop_assert_eq!(reply.status.to_string(), &case.answer.status[..3]);
        prop_assert_eq!(reply.header("content-type"), Some(case.answer.kind));
        prop_assert_eq!(reply.header("x-strange"), Some(case.answer.strange.as_str()));
        same(&case.answer.body, &reply.body)
    }
}

#[test]
fn messages_pass_an_http_server_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let world = world(&scene);
    let stage = Shared::new(move || Stage::open(&world));
    check(250, &case(), |case| stage.with(|stage| stage.run(&case)));
}

/// A listener gets one sequence of bytes, however it was cut.
#[test]
fn event_streams_pass_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let world = world(&scene);
    let stage = Shared::new(move || {
        let stage = Stage::open(&world);
        let mut listens = world.gateway.connect();
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", SESSION)];
        listens.send("GET", "/x/mcp", &headers, b"").expect("it is sent");
        assert_eq!(listens.head().expect("an answer").status, 200);
        (stage, listens)
    });
    let pieces = vec(event_stream(), 1..4);
    check(200, &pieces, |pieces| {
        stage.with(|(stage, listens)| {
            let (mut sent, mut arrived) = (Vec::new(), Vec::new());
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                sent.extend_from_slice(&piece);
                stage.world.stream.send(piece).expect("the upstream is there");
            }
            while arrived.len() < sent.len() {
                arrived.extend(listens.chunk().expect("a stream").unwrap_or_default());
            }
            same(sent, arrived)
        })
    });
}

/// `initialize` and its answer in every form, each time for a new session.
#[test]
fn the_handshake_passes_an_http_server_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let world = world(&scene);
    let parts = odd::id().prop_flat_map(|id| {
        let params = odd::object(Space::Lines, vec![("protocolVersion", "\"2025-06-18\"".to_owned())]);
        let body = (Just(id.clone()), params).prop_flat_map(|(id, params)| {
            let known =
                [("jsonrpc", "\"2.0\""), ("method", "\"initialize\"")].map(|(name, value)| (name, value.to_owned()));
            odd::object(Space::Lines, [&known[..], &[("id", id), ("params", params)]].concat())
        });
        (body, planned(&id))
    });
    check(100, &parts, |(body, answer)| {
        *world.script.next.lock().expect("no thread panics while it holds the lock") = Some(answer.clone());
        let reply = world.gateway.ask("POST", "/x/mcp", &POST, body.as_bytes());
        let seen = world.upstream.take();
        same(&body, &seen.body)?;
        prop_assert_eq!(reply.status.to_string(), &answer.status[..3]);
        same(&answer.body, &reply.body)
    });
}
