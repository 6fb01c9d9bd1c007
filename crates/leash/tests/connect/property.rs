//! Any message passes unchanged, in both directions: the same property as for `serve`, here between a pipe and HTTP.

#[path = "../serve/fidelity/odd.rs"]
mod odd;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use testkit::upstream::{Seen, Upstream, Wire};

use crate::host::{Connect, scene};
use crate::upstream::initialized;
use odd::Space;

/// One exchange on a connection, which is over before the next.
#[derive(Clone, Debug)]
enum Case {
    /// A request (or several) of the host, answered by a stream: the messages before the answer, the answer, and the
    /// line ending.
    Streamed { body: String, messages: Vec<String>, ending: &'static str },
    /// The same as one body, which may have several lines.
    Whole { body: String, answer: String },
    /// A notification or a response of the host.
    Told { body: String },
    /// A notification or a request of the server.
    Said { message: String, ending: &'static str },
}

fn servers_own() -> BoxedStrategy<String> {
    let request = odd::id().prop_flat_map(|id| odd::request(Space::Line, id));
    prop_oneof![odd::notification(Space::Line), request].boxed()
}

/// A request or a batch with one, and an answer to it.
fn asked(space: Space) -> BoxedStrategy<(String, String)> {
    let one = odd::id().prop_flat_map(move |id| (odd::request(Space::Line, id.clone()), odd::response(space, id)));
    let batch = (odd::id(), odd::notification(Space::Line)).prop_flat_map(move |(id, note)| {
        let request = odd::request(Space::Line, id.clone());
        let body = request.prop_flat_map(move |request| odd::array(Space::Line, vec![note.clone(), request]));
        let answer = odd::response(space, id).prop_flat_map(move |answer| odd::array(space, vec![answer]));
        (body, answer)
    });
    prop_oneof![3 => one, 1 => batch].boxed()
}

fn case() -> impl Strategy<Value = Case> {
    let ending = || select(vec!["\n", "\r\n", "\r"]);
    let streamed = (asked(Space::Line), vec(servers_own(), 0..3), ending());
    let told =
        prop_oneof![odd::notification(Space::Line), odd::id().prop_flat_map(|id| odd::response(Space::Line, id))];
    prop_oneof![
        3 => streamed.prop_map(|((body, answer), before, ending)| {
            let messages = before.into_iter().chain([answer]).collect();
            Case::Streamed { body, messages, ending }
        }),
        2 => asked(Space::Lines).prop_map(|(body, answer)| Case::Whole { body, answer }),
        1 => told.prop_map(|body| Case::Told { body }),
        2 => (servers_own(), ending()).prop_map(|(message, ending)| Case::Said { message, ending }),
    ]
}

/// A message as an event.
fn event(message: &str, ending: &str) -> Vec<u8> {
    format!("event: message{ending}data: {message}{ending}{ending}").into_bytes()
}

/// The next answer of the upstream, and the messages for its listeners.
struct Script {
    next: Mutex<Option<Case>>,
    stream: Mutex<Receiver<Vec<u8>>>,
}

impl Script {
    fn answer(&self, seen: &Seen, wire: &mut Wire) -> io::Result<()> {
        const JSON: (&str, &str) = ("Content-Type", "application/json");
        const EVENTS: (&str, &str) = ("Content-Type", "text/event-stream");
        let case = self.next.lock().expect("no thread panics while it holds the lock").take();
        match (seen.method.as_str(), case) {
            ("POST", Some(Case::Streamed { messages, ending, .. })) => {
                wire.begin("200 OK", &[EVENTS])?;
                messages.iter().try_for_each(|message| wire.chunk(&event(message, ending)))?;
                wire.finish()
            }
            ("POST", Some(Case::Whole { answer, .. })) => wire.answer("200 OK", &[JSON], answer.as_bytes()),
            ("POST", None) if seen.header("mcp-session-id").is_none() => {
                let body = initialized(&0.into());
                wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", "one")], body.as_bytes())
            }
            ("GET", _) => {
                wire.begin("200 OK", &[EVENTS])?;
                let stream = self.stream.lock().expect("no thread panics while it holds the lock");
                stream.iter().try_for_each(|bytes| wire.chunk(&bytes))?;
                wire.finish()
            }
            ("DELETE", _) => wire.answer("200 OK", &[], b""),
            _ => wire.answer("202 Accepted", &[], b""),
        }
    }
}

/// Dropped in this order: dropping `stream` makes the upstream end its own stream.
struct Stage {
    stream: Sender<Vec<u8>>,
    connect: Connect,
    upstream: Upstream,
    script: Arc<Script>,
}

impl Stage {
    fn open(scene: &testkit::scene::Scene) -> Stage {
        let (stream, said) = channel();
        let script = Arc::new(Script { next: Mutex::default(), stream: Mutex::new(said) });
        let shared = Arc::clone(&script);
        let upstream = Upstream::start(move |seen, wire| shared.answer(seen, wire));
        let connect = Connect::open(scene, &[&upstream.url()]);
        testkit::wait::until("a listener", || upstream.of("GET").pop());
        upstream.forget();
        Stage { stream, connect, upstream, script }
    }

    fn send(&mut self, body: &str, case: Case) -> TestCaseResult {
        *self.script.next.lock().expect("no thread panics while it holds the lock") = Some(case);
        self.connect.send(body);
        let seen = self.upstream.take();
        prop_assert_eq!((seen.method.clone(), seen.text()), ("POST".to_owned(), body.to_owned()));
        Ok(())
    }

    fn run(&mut self, case: Case) -> TestCaseResult {
        match &case {
            Case::Told { body } => self.send(body, case.clone())?,
            Case::Said { message, ending } => {
                self.stream.send(event(message, ending)).expect("the upstream is there");
                prop_assert_eq!(&self.connect.next(), message);
            }
            Case::Streamed { body, messages, .. } => {
                self.send(body, case.clone())?;
                for message in messages {
                    prop_assert_eq!(&self.connect.next(), message);
                }
            }
            Case::Whole { body, answer } => {
                self.send(body, case.clone())?;
                // The host gets one line: line breaks become blanks, and surrounding whitespace does not matter.
                let answer = answer.replace(['\n', '\r'], " ");
                let line = self.connect.next();
                prop_assert_eq!(line.trim(), answer.trim());
            }
        }
        Ok(())
    }
}

#[test]
fn any_message_passes_unchanged() {
    let scene = scene();
    let stage = std::cell::RefCell::new(None);
    let config = Config { cases: 200, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let tried = TestRunner::new(config).run(&case(), |case| {
        // After a failed case a new connection is opened.
        let mut used = stage.take().unwrap_or_else(|| Stage::open(&scene));
        used.run(case)?;
        stage.replace(Some(used));
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
