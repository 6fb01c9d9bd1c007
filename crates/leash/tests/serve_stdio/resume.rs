//! A lost connection does not end the session.

use std::ffi::OsStr;

use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{Client, LATEST, call, events, gateway, read_events};

fn data(event: &super::Event) -> &Value {
    &event.message.as_ref().expect("a message")["params"]["data"]
}

#[test]
fn resumed_call_gets_all_missed_events() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    // The server is busy with the first call, so the second connection is lost while it waits.
    let mut slow = client.begin(&call(1, "sleep", json!({"ms": 700})));
    let mut cut = client.begin(&call(2, "log", json!({"count": 3})));
    assert_eq!(cut.head().expect("a stream").header("content-type"), Some("text/event-stream"));
    let primed = read_events(&mut cut, 1);
    assert_eq!(primed[0].message, None);
    drop(cut);
    let primed = primed[0].id.clone().expect("an id to come back with");
    let (mut again, head) = client.get(Some(&primed));
    assert_eq!(head.status, 200);
    let told = read_events(&mut again, 4);
    let numbers: Vec<_> = told[..3].iter().map(data).collect();
    assert_eq!(numbers, ["0", "1", "2"]);
    assert_eq!(told[3].message.as_ref().expect("the answer")["id"], 2);
    assert_eq!(again.chunk().expect("an end"), None, "the answer ends the stream");
    assert_eq!(slow.reply().expect("an answer").json()["id"], 1, "the other call is not disturbed");
    // Resumed again, from the middle, although the call is over.
    let (mut again, _) = client.get(told[1].id.as_deref());
    let rest = read_events(&mut again, 2);
    assert_eq!(data(&rest[0]), "2");
    assert_eq!(rest[1].message, told[3].message);
    assert_eq!(rest[1].id, told[3].id);
}

#[test]
fn resumed_listener_gets_all_missed_events() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let _busy = [8, 9].map(|id| client.begin(&call(id, "hang", json!({}))));
    let (mut first, _) = client.get(None);
    let mut waiting = client.begin(&call(1, "log", json!({"count": 2})));
    let told = read_events(&mut first, 3);
    waiting.reply().expect("an answer");
    // The client has lost its connection, and the gateway has not noticed.
    let (mut second, head) = client.get(told[1].id.as_deref());
    assert_eq!(head.status, 200);
    assert_eq!(read_events(&mut second, 1)[0], told[2], "what came after the one that was seen");
    // The old connection gets nothing more: it is cut.
    let ended = wait::until("the first connection to be cut", || match first.chunk() {
        Ok(Some(_)) => None,
        Ok(None) => Some("ended"),
        Err(_) => Some("cut"),
    });
    assert_eq!(ended, "cut");
}

#[test]
fn an_event_that_is_not_kept_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let words: Vec<String> = scene.tree("polite", ["--mcp"]).iter().map(|word| format!("{word:?}")).collect();
    let server =
        format!(r#""command": {}, "args": [{}], "leash": {{"replay": "1K"}}"#, words[0], words[1..].join(", "));
    let file = scene.dir().join("leash.json");
    std::fs::write(&file, format!(r#"{{"mcpServers": {{"x": {{{server}}}}}}}"#))
        .expect("cannot write the configuration");
    let gateway = Gateway::start(&scene, [OsStr::new("--config"), file.as_os_str()]);
    let client = Client::open(&gateway, LATEST);
    let told = events(&client.post(&call(1, "log", json!({"count": 1}))).text());
    let old = told[0].id.clone().expect("an id");
    let status = |id: &str| client.get(Some(id)).1.status;
    assert_eq!(status(&old), 200);
    for wrong in ["nonsense", "0-1", "999-0", "1-99", "-", "1-", "1-x", ""] {
        assert_eq!(status(wrong), 400, "{wrong}");
    }
    // Newer streams use up the buffer.
    client.post(&call(2, "log", json!({"count": 5, "text": "x".repeat(200)})));
    assert_eq!(status(&old), 400);
    assert_eq!(client.post(&call(3, "echo", json!({}))).status, 200, "the session goes on");
}
