//! `pressureStop` behind `leash serve`.

use std::fs;

use leash_model::pressure::MemoryState;
use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::machine::Machine;

const VERSION: &str = "2025-11-25";

/// Begins a client session at a server of the gateway.
fn open(gateway: &Gateway, server: &str) -> String {
    let reply = gateway.post(server, None, &initialize(VERSION));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("mcp-session-id").expect("a session").to_owned()
}

fn ping(gateway: &Gateway, server: &str, session: &str) -> u16 {
    gateway.post(server, Some(session), &json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string()).status
}

/// A client that only listens is idle, one with a call in flight is not. The stopped session answers 404, as any other
/// that has ended, and the client begins a new one.
#[test]
fn idle_session_ends_and_one_with_a_call_in_flight_stays() {
    let Some(machine) = or_skip!(Machine::enter("serving::idle_session_ends_and_one_with_a_call_in_flight_stays"))
    else {
        return;
    };
    let scene = or_skip!(Scene::set(Who::Root));
    let words: Vec<String> =
        scene.tree("polite", ["--mcp"]).iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let server = |leash: Value| json!({"command": words[0], "args": words[1..], "leash": leash});
    let config = json!({"mcpServers": {"may": server(json!({"pressureStop": "1s"})), "never": server(json!({}))}});
    let path = scene.dir().join("leash.json");
    fs::write(&path, config.to_string()).expect("ours");
    let gateway = Gateway::start(&scene, ["--config".as_ref(), path.as_os_str()]);
    let (idle, busy, kept) = (open(&gateway, "may"), open(&gateway, "may"), open(&gateway, "never"));

    let mut listener = gateway.connect();
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", &*idle)];
    listener.send("GET", "/may/mcp", &headers, b"").expect("it is written");
    assert_eq!(listener.head().expect("an answer").status, 200);
    let mut call = gateway.connect();
    let headers = [POST[0], POST[1], ("mcp-session-id", &*busy)];
    let hang = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hang"}});
    call.send("POST", "/may/mcp", &headers, hang.to_string().as_bytes()).expect("it is written");

    let marks = scene.answer(["ps", "--json"]).json();
    let marked = marks["sessions"].as_array().expect("a list").iter().filter(|run| run["idle_stop"].is_object());
    assert_eq!(marked.count(), 2, "{marks:#}");

    machine.set_memory(MemoryState::Short);
    wait::until("the idle session is gone", || {
        let history = scene.answer(["history", "--json"]).json();
        let receipt = &history["receipts"][0];
        (receipt["reason"]["kind"] == "memory_pressure").then(|| assert_eq!(receipt["session"], *idle, "{history:#}"))
    });
    assert_eq!(ping(&gateway, "may", &idle), 404);
    assert_eq!((ping(&gateway, "may", &busy), ping(&gateway, "never", &kept)), (200, 200));
    let anew = open(&gateway, "may");
    assert_eq!(ping(&gateway, "may", &anew), 200);
    drop((listener, call));
    gateway.stop();
    scene.wait_gone(&[]).expect("everything ends with the gateway");
}
