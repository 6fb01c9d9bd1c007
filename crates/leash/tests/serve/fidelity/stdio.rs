//! A stdio server behind the gateway, in the legacy era.

use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use testkit::events::{self, Events};
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::or_skip;
use testkit::puppet::{Puppet, Theatre};
use testkit::scene::Scene;
use testkit::user::Who;

use super::odd::{self, Space};
use super::{Shared, check, same};

/// One exchange in a session, which is answered before the next.
#[derive(Clone, Debug)]
enum Case {
    /// A request of the client, the server's messages before the answer, and the answer.
    Request { body: String, before: Vec<String>, answer: String },
    /// A notification or a response of the client.
    Told { body: String },
    /// A notification or a request of the server.
    Said { line: String },
    /// A batch of the client, with the answers to its requests: as one line, or one by one.
    Batch { body: String, answers: Vec<String>, one_line: Option<String> },
}

fn servers_own(space: Space) -> BoxedStrategy<String> {
    let request = odd::id().prop_flat_map(move |id| odd::request(space, id));
    prop_oneof![odd::notification(space), request].boxed()
}

fn request() -> BoxedStrategy<Case> {
    let parts = odd::id().prop_flat_map(|id| {
        let (body, answer) = (odd::request(Space::Line, id.clone()), odd::response(Space::Line, respell(&id)));
        (body, vec(servers_own(Space::Line), 0..3), answer)
    });
    parts.prop_map(|(body, before, answer)| Case::Request { body, before, answer }).boxed()
}

/// A server may write an id with other escapes than the client, unless it has half a surrogate pair: programs would not
/// agree on such a text, so leash compares it as it is written.
fn respell(id: &str) -> String {
    let halves = ["\\ud800", "\\uDC00"].iter().any(|half| id.contains(half));
    if id.len().is_multiple_of(3) && !halves { odd::respelled(id) } else { id.to_owned() }
}

fn batch() -> BoxedStrategy<Case> {
    let ids = prop::collection::btree_set("[1-9][0-9]{0,29}", 1..4);
    let parts = (ids, 0..3_usize, any::<bool>()).prop_flat_map(|(ids, others, together)| {
        let requests: Vec<_> = ids.iter().map(|id| odd::request(Space::Line, id.clone())).collect();
        let answers: Vec<_> = ids.iter().map(|id| odd::response(Space::Line, id.clone())).collect();
        (requests, vec(odd::notification(Space::Line), others), answers, Just(together))
    });
    parts
        .prop_flat_map(|(requests, others, answers, together)| {
            let body = Just([requests, others].concat()).prop_shuffle();
            let body = body.prop_flat_map(|texts| odd::array(Space::Line, texts));
            let one_line =
                if together { odd::array(Space::Line, answers.clone()) } else { Just(String::new()).boxed() };
            (body, Just(answers), one_line)
        })
        .prop_map(|(body, answers, line)| Case::Batch {
            body,
            answers,
            one_line: Some(line).filter(|line| !line.is_empty()),
        })
        .boxed()
}

fn case() -> impl Strategy<Value = Case> {
    let told =
        prop_oneof![odd::notification(Space::Line), odd::id().prop_flat_map(|id| odd::response(Space::Line, id)),];
    prop_oneof![
        4 => request(),
        1 => told.prop_map(|body| Case::Told { body }),
        2 => servers_own(Space::Line).prop_map(|line| Case::Said { line }),
        2 => batch(),
    ]
}

/// A session with the two connections of its client.
struct Stage {
    gateway: Rc<Gateway>,
    puppet: Puppet,
    session: String,
    posts: Connection,
    listens: Events,
}

impl Stage {
    fn open(gateway: &Rc<Gateway>, theatre: &Theatre, version: &str) -> Self {
        let mut posts = gateway.connect();
        let body = initialize(version);
        posts.send("POST", "/x/mcp", &POST, body.as_bytes()).expect("it is sent");
        let mut puppet = theatre.next();
        puppet.initialize(version);
        let opened = posts.reply().expect("an answer");
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        let mut listens = gateway.connect();
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", &session)];
        listens.send("GET", "/x/mcp", &headers, b"").expect("it is sent");
        assert_eq!(listens.head().expect("an answer").status, 200);
        Self { gateway: Rc::clone(gateway), puppet, session, posts, listens: Events::new(listens) }
    }

    fn send(&mut self, body: &str) -> TestCaseResult {
        let headers = [POST[0], POST[1], ("mcp-session-id", &self.session)];
        self.posts.send("POST", "/x/mcp", &headers, body.as_bytes()).expect("it is sent");
        same(body, self.puppet.hear())?;
        Ok(())
    }

    fn run(&mut self, case: Case) -> TestCaseResult {
        match case {
            Case::Told { body } => {
                self.send(&body)?;
                prop_assert_eq!(self.posts.reply().expect("an answer").status, 202);
            }
            Case::Said { line } => {
                self.puppet.say(&line);
                same(&line, self.listens.message().expect("a stream").expect("a message"))?;
            }
            Case::Request { body, before, answer } => {
                self.send(&body)?;
                before.iter().for_each(|line| self.puppet.say(line));
                self.puppet.say(&answer);
                let reply = self.posts.reply().expect("an answer");
                prop_assert_eq!(reply.status, 200, "{}", self.gateway.said());
                if reply.header("content-type") == Some("application/json") {
                    prop_assert!(before.is_empty());
                    same(&answer, &reply.body)?;
                    return Ok(());
                }
                let messages = events::parse(&reply.body).into_iter().filter_map(|event| event.data);
                let messages: Vec<_> = messages.filter(|data| !data.is_empty()).collect();
                prop_assert_eq!(messages.len(), before.len() + 1, "{}", reply.text());
                for (sent, arrived) in before.iter().chain([&answer]).zip(&messages) {
                    same(sent, arrived)?;
                }
            }
            Case::Batch { body, answers, one_line } => {
                self.send(&body)?;
                let expected = match &one_line {
                    Some(line) => line.clone(),
                    None => format!("[{}]", answers.join(",")),
                };
                match &one_line {
                    Some(line) => self.puppet.say(line),
                    None => answers.iter().for_each(|answer| self.puppet.say(answer)),
                }
                same(expected, self.posts.reply().expect("an answer").body)?;
            }
        }
        Ok(())
    }
}

/// A gateway in front of puppets.
fn gateway(scene: &Scene, theatre: &Theatre) -> Rc<Gateway> {
    Rc::new(Gateway::single(scene, &[], &theatre.words(scene, "polite")))
}

#[test]
fn messages_pass_a_stdio_server_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let stage = Shared::new({
        let gateway = Rc::clone(&gateway);
        move || Stage::open(&gateway, &theatre, "2025-03-26")
    });
    check(200, &case(), |case| stage.with(|stage| stage.run(case)));
    assert_eq!(gateway.metric("leash_garbage_lines_total{server=\"x\"}"), Some(0.0));
}

/// Streams that can be resumed have additional events, and the same messages in them.
#[test]
fn messages_pass_a_stdio_server_unchanged_in_streams_that_can_be_resumed() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let stage = Shared::new(move || Stage::open(&gateway, &theatre, "2025-11-25"));
    let case = prop_oneof![request(), servers_own(Space::Line).prop_map(|line| Case::Said { line })];
    check(100, &case, |case| stage.with(|stage| stage.run(case)));
}

/// A message for a stdio server is a line. Line breaks can only be between tokens, where a blank has the same meaning.
#[test]
fn line_breaks_become_blanks_for_a_stdio_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let stage = Shared::new(move || Stage::open(&gateway, &theatre, "2025-03-26"));
    check(100, &odd::notification(Space::Lines), |body| {
        stage.with(|stage| {
            let headers = [POST[0], POST[1], ("mcp-session-id", &stage.session)];
            stage.posts.send("POST", "/x/mcp", &headers, body.as_bytes()).expect("it is sent");
            same(body.replace(['\n', '\r'], " "), stage.puppet.hear())?;
            prop_assert_eq!(stage.posts.reply().expect("an answer").status, 202);
            Ok(())
        })
    });
}

/// CR is whitespace in JSON and the end of a line in an event stream. A single JSON body keeps it; in an event it is a
/// line break, which a client reads as LF.
#[test]
fn carriage_returns_of_a_stdio_server_stay_where_they_can() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let mut stage = Stage::open(&gateway, &theatre, "2025-03-26");
    let case = Case::Request {
        body: r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#.to_owned(),
        before: Vec::new(),
        answer: "{\"jsonrpc\":\r\"2.0\",\r\r\"id\":1,\"result\":\r{}}".to_owned(),
    };
    stage.run(case).expect("it passes");
    // The one at the end of a line belongs to the line break.
    stage.puppet.say("{\"jsonrpc\":\r\"2.0\",\r\r\"method\":\"x\"}\r");
    let event = stage.listens.message().expect("a stream").expect("a message");
    assert_eq!(String::from_utf8_lossy(&event), "{\"jsonrpc\":\n\"2.0\",\n\n\"method\":\"x\"}");
}

/// `initialize` and its answer, each time for a new session.
#[test]
fn the_handshake_passes_a_stdio_server_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let handshake = odd::id().prop_flat_map(|id| {
        let version = vec![("protocolVersion", "\"2025-06-18\"".to_owned())];
        let (params, result) = (odd::object(Space::Line, version.clone()), odd::object(Space::Line, version));
        (Just(id), params, result).prop_flat_map(|(id, params, result)| {
            let (jsonrpc, method) = ("\"2.0\"".to_owned(), "\"initialize\"".to_owned());
            let known = [("jsonrpc", jsonrpc), ("id", id)];
            let asked = [&known[..], &[("method", method), ("params", params)]].concat();
            let answered = [&known[..], &[("result", result)]].concat();
            (odd::object(Space::Line, asked), odd::object(Space::Line, answered))
        })
    });
    check(12, &handshake, |(body, answer)| {
        let mut client = gateway.connect();
        client.send("POST", "/x/mcp", &POST, body.as_bytes()).expect("it is sent");
        let mut puppet = theatre.next();
        same(&body, puppet.hear())?;
        puppet.say(&answer);
        let reply = client.reply().expect("an answer");
        prop_assert!(reply.status == 200 && reply.header("mcp-session-id").is_some(), "{reply:?}");
        same(&answer, &reply.body)
    });
}
