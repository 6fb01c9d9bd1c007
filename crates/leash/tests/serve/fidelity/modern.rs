//! A stdio server behind the gateway, in the modern era: several clients share its pipe, so each request has a number
//! there instead of its id and its progress token. Everything else is unchanged.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST};
use testkit::puppet::{Puppet, Theatre};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{events, or_skip};

use super::odd::{self, Space};
use super::{Shared, check, same};

/// Placeholders for the id and the token in a text; JSON has no such characters.
const ID: &str = "\u{1}";
const TOKEN: &str = "\u{2}";

const VERSION: &str = "2026-07-28";

#[derive(Clone, Debug)]
struct Case {
    id: String,
    token: String,
    body: String,
    /// Progress, and notifications that name no request.
    before: Vec<String>,
    answer: String,
}

fn body() -> BoxedStrategy<String> {
    let key = |name: &'static str, value: String| (name, value);
    let meta = vec![
        key("io.modelcontextprotocol/protocolVersion", format!("\"{VERSION}\"")),
        key("io.modelcontextprotocol/clientCapabilities", "{}".to_owned()),
        key("progressToken", TOKEN.to_owned()),
    ];
    let params = odd::object(Space::Line, meta).prop_flat_map(|meta| odd::object(Space::Line, vec![("_meta", meta)]));
    let text = params.prop_flat_map(|params| {
        let (version, method) = ("\"2.0\"".to_owned(), "\"x/y\"".to_owned());
        odd::object(
            Space::Line,
            vec![("jsonrpc", version), ("id", ID.to_owned()), ("method", method), ("params", params)],
        )
    });
    text.boxed()
}

fn before() -> BoxedStrategy<String> {
    let progress = odd::object(Space::Line, vec![("progressToken", TOKEN.to_owned())]).prop_flat_map(|params| {
        let (version, method) = ("\"2.0\"".to_owned(), "\"notifications/progress\"".to_owned());
        odd::object(Space::Line, vec![("jsonrpc", version), ("method", method), ("params", params)])
    });
    prop_oneof![progress, odd::notification(Space::Line)].boxed()
}

fn case() -> impl Strategy<Value = Case> {
    let id = prop_oneof!["[1-9][0-9]{0,29}", odd::string()];
    let parts = (id, odd::string(), body(), vec(before(), 0..3), odd::response(Space::Line, ID.to_owned()));
    parts.prop_map(|(id, token, body, before, answer)| Case { id, token, body, before, answer })
}

struct Stage {
    client: Connection,
    puppet: Option<Puppet>,
}

impl Stage {
    fn run(&mut self, theatre: &Theatre, case: &Case) -> TestCaseResult {
        let theirs = |text: &str| text.replace(ID, &case.id).replace(TOKEN, &case.token);
        let body = theirs(&case.body);
        let headers = [POST[0], POST[1], ("mcp-protocol-version", VERSION), ("mcp-method", "x/y")];
        self.client.send("POST", "/x/mcp", &headers, body.as_bytes()).expect("it is sent");
        let puppet = self.puppet.get_or_insert_with(|| discovered(theatre));
        let line = puppet.hear_text();
        let number = number(&case.body, &line);
        let ours = |text: &str| text.replace(ID, &number).replace(TOKEN, &number);
        same(ours(&case.body), &line)?;
        case.before.iter().for_each(|text| puppet.say(ours(text)));
        puppet.say(ours(&case.answer));
        let reply = self.client.reply().expect("an answer");
        if case.before.is_empty() {
            return same(theirs(&case.answer), &reply.body);
        }
        let messages: Vec<_> = events::parse(&reply.body).into_iter().filter_map(|event| event.data).collect();
        prop_assert_eq!(messages.len(), case.before.len() + 1, "{}", reply.text());
        for (sent, arrived) in case.before.iter().chain([&case.answer]).zip(&messages) {
            same(theirs(sent), arrived)?;
        }
        Ok(())
    }
}

/// A puppet that has answered `server/discover` as a modern server.
fn discovered(theatre: &Theatre) -> Puppet {
    let mut puppet = theatre.next();
    let question: serde_json::Value = serde_json::from_slice(&puppet.hear()).expect("it is JSON");
    assert_eq!(question["method"], "server/discover");
    puppet.say(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, question["id"]));
    puppet
}

/// The number in place of the id.
fn number(body: &str, line: &str) -> String {
    let first = body.find([ID, TOKEN].map(|mark| mark.chars().next().unwrap_or_default())).unwrap_or_default();
    let rest = line.get(first..).unwrap_or_default();
    rest.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn messages_pass_a_modern_stdio_server_unchanged() {
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = Gateway::single(&scene, &[], &theatre.words(&scene, "polite"));
    let address = gateway.address();
    // One tree serves all clients: only the first client reaches it before its era is known.
    let stage = Shared::new(move || Stage { client: Connection::open(address), puppet: None });
    check(100, &case(), |case| stage.with(|stage| stage.run(&theatre, &case)));
    assert_eq!(gateway.metric("leash_garbage_lines_total{server=\"x\"}"), Some(0.0));
}
