//! Sessions and the lifecycle of their daemon: a reload, a stop, a kill.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{answering, ask, create, socket, stdio_server};

/// A session with both kinds of servers, and a client in the middle of a conversation with each.
fn begin(scene: &mut Scene, fixture: &Fixture) -> Value {
    let servers = json!({ "files": stdio_server(scene), "web": { "type": "http", "url": fixture.url() } });
    let session = create(&socket(scene), &json!({ "mcpServers": servers, "labels": { "job": "42" } }));
    scene.census().wait_ready(LIMIT).expect("the stdio server runs");
    for server in session["servers"].as_array().expect("servers") {
        open(server["url"].as_str().expect("a url"));
    }
    assert_eq!(fixture.report().open().len(), 1);
    session
}

/// Opens an MCP session at a URL.
fn open(url: &str) -> String {
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL of ours");
    let mut connection = Connection::open(address.parse().expect("an address"));
    let reply = connection.ask("POST", &format!("/{path}"), &POST, initialize("2025-06-18").as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("mcp-session-id").expect("a session").to_owned()
}

fn receipts_of(scene: &Scene, session: &Value) -> Vec<Value> {
    let history = scene.answer(["history", "--json", "-n", "1000"]).json();
    let all = history["receipts"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|receipt| receipt["session"] == session["id"]).collect()
}

#[test]
fn a_reload_leaves_sessions_alone() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let file = scene.dir().join("leash.json");
    let write = |server: &str| {
        let young = file.with_extension("new");
        let text = format!(r#"{{"mcpServers": {{"{server}": {{"command": "cat"}}}}}}"#);
        std::fs::write(&young, text).expect("a file");
        std::fs::rename(&young, &file).expect("a file");
    };
    write("one");
    let gateway = Gateway::start(&scene, ["--config", file.to_str().expect("a plain path")]);
    let session = begin(&mut scene, &fixture);
    write("two");
    wait::until("a reload", || gateway.said().contains("removed: one").then_some(()));
    let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    assert_eq!(ask(&socket(&scene), "GET", &path, "").json()["state"], "live");
    assert!(scene.census().is_populated());
    open(session["servers"][1]["url"].as_str().expect("a url"));
    let end = ask(&socket(&scene), "DELETE", &path, "");
    assert_eq!(end.status, 200, "{}", end.text());
    fixture.wait_deleted();
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn stop_ends_sessions_and_reports_it() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::single(&scene, &[], &["cat".into()]);
    let session = begin(&mut scene, &fixture);
    let mut events = Connection::open_local(&socket(&scene)).expect("it listens");
    events.send("GET", "/v1/events", &[("accept", "text/event-stream")], b"").expect("it is sent");
    assert_eq!(events.head().expect("an answer").status, 200);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
    fixture.wait_deleted();
    // The keepers of its trees write their own receipts, because all other processes may be gone.
    let mut receipts = receipts_of(&scene, &session);
    receipts.retain(|receipt| receipt["ended_by"] == "gateway");
    assert_eq!(receipts.len(), 1, "{receipts:#?}");
    assert_eq!(receipts[0]["reason"]["kind"], "shutdown");
    let fates: Vec<_> =
        receipts[0]["holdings"].as_array().expect("holdings").iter().map(|held| &held["fate"]).collect();
    assert!(fates.len() >= 2 && fates.iter().all(|fate| *fate == "gone"), "{receipts:#?}");
    // Listeners got all events up to the end.
    let mut heard = String::new();
    while let Ok(Some(chunk)) = events.chunk() {
        heard.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(heard.contains("event: ended"), "{heard}");
    assert!(!socket(&scene).exists());
}

/// While one daemon stops, the next one starts: its clients need not wait for the old sessions.
#[test]
fn next_daemon_starts_while_the_old_one_stops() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &["cat".into()]);
    let words: Vec<String> =
        scene.tree("stubborn", ["--mcp"]).iter().map(|word| word.to_str().expect("plain words").to_owned()).collect();
    let server = json!({ "command": words[0], "args": words[1..], "leash": { "grace": "3s" } });
    create(&socket(&scene), &json!({ "mcpServers": { "slow": server } }));
    scene.census().wait_ready(LIMIT).expect("the server runs");
    let mut waiting = Connection::open_local(&socket(&scene)).expect("it listens");
    gateway.signal(Signal::TERM);
    wait::until("the socket to be given up", || (!socket(&scene).exists()).then_some(()));
    let next = Gateway::single(&scene, &[], &["cat".into()]);
    assert_eq!(answering(&socket(&scene)), Some(next.pid().as_raw_nonzero().get()));
    assert!(!next.said().contains("warning"), "{}", next.said());
    assert!(scene.census().is_populated(), "the first one was not stopping any more");
    // A client of the old daemon gets an answer, or sees its connection closed. It is never left without an answer.
    if waiting.send("POST", "/v1/sessions", &[("content-type", "application/json")], b"{}").is_ok()
        && let Ok(reply) = waiting.reply()
    {
        assert_eq!(reply.status, 503, "{}", reply.text());
    }
    let mut gateway = gateway;
    assert_eq!(gateway.wait(), Some(0), "{}", gateway.said());
    next.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn a_killed_daemon_leaves_nothing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let mut gateway = Gateway::single(&scene, &[], &["cat".into()]);
    for _ in 0..5 {
        scene.census().forget();
        let servers = json!({ "files": stdio_server(&scene), "web": { "type": "http", "url": fixture.url() } });
        let session = create(&socket(&scene), &json!({ "mcpServers": servers }));
        for server in session["servers"].as_array().expect("servers") {
            open(server["url"].as_str().expect("a url"));
        }
    }
    gateway.signal(Signal::KILL);
    gateway.wait();
    // No other leash has started since.
    scene.wait_gone(&[]).expect("the keepers end the trees and the sessions");
    assert_eq!(fixture.wait_deleted(), 5);
    let next = Gateway::single(&scene, &[], &["cat".into()]);
    assert_eq!(answering(&socket(&scene)), Some(next.pid().as_raw_nonzero().get()));
    assert_eq!(ask(&socket(&scene), "GET", "/v1/sessions", "").json(), json!({ "sessions": [] }));
    next.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}
