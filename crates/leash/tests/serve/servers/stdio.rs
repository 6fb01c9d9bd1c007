//! Servers over stdio.

use rustix::process::Signal;
use testkit::events::{self, Events};
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, Reply, initialize};
use testkit::puppet::{Puppet, Theatre};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, ask, listen, no_session_is_left, receipt};

struct Stage {
    // Dropped in this order: first the processes on the scene.
    gateway: Gateway,
    theatre: Theatre,
    scene: Scene,
}

impl Stage {
    fn set(options: &[&str], kind: &str) -> Result<Self, String> {
        let scene = Scene::set(Who::User)?;
        let theatre = Theatre::open(&scene);
        let gateway = Gateway::single(&scene, options, &theatre.words(&scene, kind));
        Ok(Self { scene, theatre, gateway })
    }

    /// A client that has sent `initialize`, and the server that gets it.
    fn begin(&self) -> (Connection, Puppet) {
        let mut client = self.gateway.connect();
        client.send("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes()).expect("it is sent");
        (client, self.theatre.next())
    }

    fn open(&self) -> (String, Puppet) {
        let (mut client, mut puppet) = self.begin();
        puppet.initialize("2025-06-18");
        let reply = client.reply().expect("an answer");
        (reply.header("mcp-session-id").expect("a session").to_owned(), puppet)
    }

    fn garbage(&self) -> f64 {
        self.gateway.metric("leash_garbage_lines_total{server=\"x\"}").unwrap_or_default()
    }

    fn nothing_is_left(&self) {
        no_session_is_left(&self.gateway);
        self.scene.wait_gone(&[self.gateway.pid()]).expect("nothing but the gateway is left");
    }
}

fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn request(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#)
}

/// True if it is leash's own error with the id of the request.
fn is_error(reply: &Reply, id: &str) -> bool {
    let json = reply.json();
    let id: serde_json::Value = serde_json::from_str(id).expect("an id is JSON");
    json["id"] == id && json["error"]["code"].is_i64() && json["error"]["message"].is_string()
}

#[test]
fn garbage_is_dropped_counted_and_reported_once() {
    let stage = or_skip!(Stage::set(&[], "polite"));
    let (session, mut puppet) = stage.open();
    let client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    let garbage: [&[u8]; 7] = [
        b"Server listening on port 3000",
        b"{\"level\":\"info\"}",
        b"[]",
        b"\xff\xfe\0",
        b"{",
        b"1",
        b"\x1b[32mok\x1b[0m",
    ];
    for line in garbage {
        puppet.say(line);
    }
    // An empty line does not count as garbage.
    puppet.say("");
    puppet.say("  \r");
    puppet.say(result("1"));
    let mut client = client;
    let reply = client.reply().expect("an answer");
    assert_eq!((reply.status, reply.text()), (200, result("1")));
    assert_eq!(stage.garbage(), 7.0);

    // Thousands of lines, and an answer among them.
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    let many = format!("{}{}\n{}", "x\n".repeat(5000), result("1"), "y\n".repeat(5000));
    puppet.write(many.as_bytes()).expect("it is taken");
    assert_eq!(client.reply().expect("an answer").text(), result("1"));
    wait::until("all lines to be counted", || (stage.garbage() == 10_007.0).then_some(()));
    assert_eq!(stage.gateway.said().matches("not a JSON-RPC message").count(), 1, "{}", stage.gateway.said());
}

#[test]
fn too_long_line_is_dropped() {
    const LENGTH: usize = 17 << 20;
    let stage = or_skip!(Stage::set(&[], "polite"));
    let (session, mut puppet) = stage.open();
    let before = stage.gateway.memory();
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    let text = "x".repeat(LENGTH - result("1").len() + 2);
    let line = result("1").replace("{}", &format!("\"{text}\""));
    puppet.say(line);
    puppet.say(result("1"));
    assert_eq!(client.reply().expect("an answer").text(), result("1"));
    assert_eq!(stage.garbage(), 1.0);
    assert!(stage.gateway.said().contains("a line of 178"), "{}", stage.gateway.said());
    let freed = wait::within(wait::LIMIT, || (stage.gateway.memory() < before + (4 << 20)).then_some(()));
    assert!(freed.is_some(), "{} bytes of memory, and {before} before", stage.gateway.memory());

    // A line just below the limit is a message.
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    let text = "x".repeat((16 << 20) - result("1").len());
    let line = result("1").replace("{}", &format!("\"{text}\""));
    assert_eq!(line.len(), 16 << 20);
    puppet.say(&line);
    assert!(client.reply().expect("an answer").body == line.as_bytes());
}

#[test]
fn a_server_that_never_answers_initialize_is_ended() {
    let stage = or_skip!(Stage::set(&["--init-timeout", "500ms", "--grace", "200ms"], "stubborn"));
    let (mut client, mut puppet) = stage.begin();
    assert!(puppet.hear_text().contains("initialize"));
    // It sends notifications, but no answer.
    puppet.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    let reply = client.reply().expect("an answer");
    let last = events::parse(&reply.body).pop().and_then(|event| event.data);
    let error = Reply { body: last.unwrap_or_else(|| reply.body.clone()), ..reply.clone() };
    assert!(is_error(&error, "0"), "{reply:?}");
    stage.nothing_is_left();
    assert_eq!(receipt(&stage.scene)["reason"]["kind"], "not_initialized");

    let (mut client, _silent) = stage.begin();
    let reply = client.reply().expect("an answer");
    assert!(reply.status == 504 && is_error(&reply, "0"), "{reply:?}");
    assert_eq!(reply.header("mcp-session-id"), None);
    stage.nothing_is_left();
}

#[test]
fn exit_before_the_answer_to_initialize_is_reported() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "setsid"));
    let (mut client, puppet) = stage.begin();
    drop(puppet);
    let reply = client.reply().expect("an answer");
    assert!(reply.status == 502 && is_error(&reply, "0"), "{reply:?}");
    assert_eq!(reply.header("mcp-session-id"), None);
    stage.nothing_is_left();
}

#[test]
fn a_server_that_refuses_initialize_is_ended() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "stubborn"));
    let (mut client, mut puppet) = stage.begin();
    puppet.hear();
    let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Unsupported protocol version"}}"#;
    puppet.say(refusal);
    let reply = client.reply().expect("an answer");
    assert_eq!((reply.status, reply.text().as_str(), reply.header("mcp-session-id")), (200, refusal, None));
    stage.nothing_is_left();
}

#[test]
fn crash_of_the_server_answers_every_request() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "setsid"));
    let (session, mut puppet) = stage.open();
    let mut listens = Events::new(listen(&stage.gateway, &session));
    let mut calls: Vec<_> = ["1", "\"two\"", "3"].map(|id| (id, ask(&stage.gateway, &session, &request(id)))).into();
    let mut batch = ask(&stage.gateway, &session, &format!("[{},{}]", request("4"), request("5")));
    for _ in 0..4 {
        puppet.hear();
    }
    // One response has become a stream by then.
    puppet.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"of":"nobody"}}"#);
    assert!(listens.message().expect("a stream").is_some());
    drop(puppet);
    for (id, client) in &mut calls {
        let reply = client.reply().expect("an answer");
        assert!(reply.status == 200 && is_error(&reply, id), "{reply:?}");
    }
    let both = batch.reply().expect("an answer").json();
    let ids: Vec<_> = both.as_array().expect("an array").iter().map(|error| error["id"].to_string()).collect();
    assert!(ids.len() == 2 && ids.contains(&"4".to_owned()) && ids.contains(&"5".to_owned()), "{both}");
    assert_eq!(listens.message().expect("a stream"), None, "its stream ends");
    assert_eq!(stage.gateway.post("x", Some(&session), LIST).status, 404);
    stage.nothing_is_left();
    assert_eq!(receipt(&stage.scene)["reason"]["kind"], "server_exited");
}

/// The last output of a server is not lost, even without a newline at its end.
#[test]
fn last_output_of_a_server_is_passed_on() {
    let stage = or_skip!(Stage::set(&[], "polite"));
    let (session, mut puppet) = stage.open();
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    puppet.write(result("1").as_bytes()).expect("it is taken");
    drop(puppet);
    assert_eq!(client.reply().expect("an answer").text(), result("1"));
    stage.nothing_is_left();
}

#[test]
fn unexpected_and_repeated_answers_are_dropped() {
    let stage = or_skip!(Stage::set(&[], "polite"));
    let (session, mut puppet) = stage.open();
    let mut listens = Events::new(listen(&stage.gateway, &session));
    for id in ["1", "2", "\"1\""] {
        let mut client = ask(&stage.gateway, &session, &request(id));
        puppet.hear();
        puppet.say(result("999"));
        puppet.say(result("\"nobody\""));
        puppet.say(result(id));
        puppet.say(result(id).replace("{}", "\"again\""));
        assert_eq!(client.reply().expect("an answer").text(), result(id));
    }
    // The id of an answered request may be used again, and gets its own answer.
    let mut client = ask(&stage.gateway, &session, &request("1"));
    puppet.hear();
    puppet.say(result("1").replace("{}", "\"new\""));
    assert_eq!(client.reply().expect("an answer").json()["result"], "new");
    // None of it was sent to another stream.
    let note = r#"{"jsonrpc":"2.0","method":"x"}"#;
    puppet.say(note);
    assert_eq!(listens.message().expect("a stream"), Some(note.as_bytes().to_vec()));
    assert_eq!(stage.garbage(), 0.0);
}

/// Without its stdout a server cannot answer. Its session ends as if it had died, and then the server is ended.
#[test]
fn a_server_that_closes_its_stdout_is_ended() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "stubborn"));
    let (session, mut puppet) = stage.open();
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    puppet.fall_silent();
    let reply = client.reply().expect("an answer");
    assert!(reply.status == 200 && is_error(&reply, "1"), "{reply:?}");
    assert_eq!(stage.gateway.post("x", Some(&session), LIST).status, 404);
    stage.nothing_is_left();
}

#[test]
fn a_server_that_ignores_everything_is_killed() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "mixed"));
    let (session, puppet) = stage.open();
    let deleted = stage.gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &session)], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    // The answer to DELETE says that it is done.
    stage.scene.wait_gone(&[stage.gateway.pid()]).expect("nothing but the gateway is left");
    let receipt = receipt(&stage.scene);
    assert_eq!(
        (&receipt["reason"]["kind"], &receipt["holdings"][0]["fate"]),
        (&"client_deleted".into(), &"gone".into())
    );
    assert_eq!(receipt["holdings"][0]["how"], "kill", "{receipt}");
    drop(puppet);
}

/// A server that does not read its input: its clients wait, the others do not, and its end is not delayed.
#[test]
fn a_server_that_does_not_read_makes_only_its_own_clients_wait() {
    let stage = or_skip!(Stage::set(&["--grace", "200ms"], "stubborn"));
    let (session, puppet) = stage.open();
    let before = stage.gateway.memory();
    let note = format!(r#"{{"jsonrpc":"2.0","method":"x","params":"{}"}}"#, "y".repeat(1 << 20));
    let mut waiting: Vec<_> = (0..8).map(|_| ask(&stage.gateway, &session, &note)).collect();
    wait::until("all to be received", || {
        let received = stage.gateway.metric("leash_received_bytes_total{server=\"x\"}").unwrap_or_default();
        (received > (8 << 20) as f64).then_some(())
    });
    let used = stage.gateway.memory().saturating_sub(before);
    // Each body, and the chunks that it arrived in.
    assert!(used < 24 << 20, "{used} bytes of memory for 8 MiB that wait");
    let (other, mut lively) = stage.open();
    let mut client = ask(&stage.gateway, &other, LIST);
    lively.hear();
    lively.say(result("1"));
    assert_eq!(client.reply().expect("an answer").text(), result("1"));
    for session in [session, other] {
        let deleted = stage.gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &session)], b"");
        assert_eq!(deleted.status, 200);
    }
    for client in &mut waiting {
        let status = client.reply().expect("an answer").status;
        assert!(matches!(status, 202 | 404), "{status}");
    }
    stage.nothing_is_left();
    drop((puppet, lively));
}

/// The gateway is stopped while a server works on a call.
#[test]
fn pending_call_is_answered_when_the_gateway_stops() {
    let mut stage = or_skip!(Stage::set(&["--grace", "200ms"], "stubborn"));
    let (session, mut puppet) = stage.open();
    let mut client = ask(&stage.gateway, &session, LIST);
    puppet.hear();
    stage.gateway.signal(Signal::TERM);
    let reply = client.reply().expect("an answer");
    assert!(is_error(&reply, "1"), "{reply:?}");
    assert_eq!(stage.gateway.wait(), Some(0));
    stage.scene.wait_gone(&[]).expect("nothing is left");
}
