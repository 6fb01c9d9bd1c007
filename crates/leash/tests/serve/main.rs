//! `leash serve`, from outside: invalid input, the lifecycle of the gateway itself, and the sessions of clients that
//! vanish.

mod abandoned;
mod admission;
mod bad_input;
mod client_files;
mod clients;
mod crash;
mod dead_peers;
mod fidelity;
mod hostile;
mod idle;
mod killed;
mod life;
mod messages;
mod metrics;
mod secrets;
mod servers;
mod status;
mod takeover;
mod tls;

use std::fs;

use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::scene::Scene;
use testkit::wait;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Writes a configuration as editors do it: a new file replaces the old one.
fn config(scene: &Scene, text: &str) -> String {
    let file = scene.dir().join("leash.json");
    let young = scene.dir().join("leash.json.new");
    fs::write(&young, text).expect("cannot write the configuration");
    fs::rename(&young, &file).expect("cannot replace the configuration");
    file.to_str().expect("a plain path").to_owned()
}

/// A stdio server with a helper that called `setsid`, as a configuration entry.
fn stdio_server(scene: &Scene) -> String {
    let words: Vec<String> = scene.tree("setsid", ["--mcp"]).iter().map(|word| format!("{word:?}")).collect();
    format!(r#""command": {}, "args": [{}]"#, words[0], words[1..].join(", "))
}

/// A gateway in front of a stdio server (`stdio`) and an HTTP server (`http`).
fn both(scene: &Scene, fixture: &Fixture, policy: &str) -> Gateway {
    let text = format!(
        r#"{{"mcpServers": {{"stdio": {{{}}}, "http": {{"type": "http", "url": "{}"}}}}, "leash": {{{policy}}}}}"#,
        stdio_server(scene),
        fixture.url(),
    );
    let file = config(scene, &text);
    Gateway::start(scene, ["--config", &file])
}

/// Opens a session.
fn open(gateway: &Gateway, name: &str) -> String {
    let reply = gateway.post(name, None, &initialize("2025-06-18"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("mcp-session-id").expect("a session").to_owned()
}

fn live(gateway: &Gateway, name: &str) -> f64 {
    gateway.metric(&format!("leash_sessions{{server=\"{name}\",state=\"live\"}}")).unwrap_or_default()
}

/// Waits until no session is left, and asks the witnesses: the census, the outer cgroup, and the upstream server.
fn nothing_is_left(scene: &mut Scene, gateway: &Gateway, fixture: &Fixture) {
    wait::until("the last session to end", || {
        let left = |name: &str| {
            let ending = gateway.metric(&format!("leash_sessions{{server=\"{name}\",state=\"ending\"}}"));
            live(gateway, name) + ending.unwrap_or_default()
        };
        (left("stdio") + left("http") == 0.0).then_some(())
    });
    every_session_was_deleted_once(fixture);
    scene.wait_gone(&[gateway.pid()]).expect("nothing but the gateway is left");
}

fn every_session_was_deleted_once(fixture: &Fixture) {
    let report = fixture.wait("every upstream session to be deleted", |report| {
        (report.deleted().len() as u64 == report.opened()).then(|| report.clone())
    });
    assert!(report.opened() > 0);
    let twice: Vec<_> = report.deleted().into_iter().filter(|(_, times)| *times != 1).collect();
    assert!(twice.is_empty(), "deleted more than once: {twice:?}");
    assert!(report.open().is_empty());
}

fn receipts(scene: &Scene) -> Vec<serde_json::Value> {
    let history = scene.answer(["history", "--json", "-n", "100000"]).json();
    history["receipts"].as_array().cloned().unwrap_or_default()
}
