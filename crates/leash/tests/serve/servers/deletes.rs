//! The answers of servers to DELETE, and the resulting receipts.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::user::Who;

use super::super::config;
use super::{no_session_is_left, open, receipt};

const OPENED: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;

/// A server that answers DELETE with these statuses, the last one repeatedly; `None` is no answer.
fn server(statuses: &'static [Option<&'static str>]) -> Upstream {
    let asked = AtomicUsize::new(0);
    Upstream::start(move |seen, wire| {
        if seen.method != "DELETE" {
            return wire.answer("200 OK", &[("Content-Type", "application/json"), ("Mcp-Session-Id", "one")], OPENED);
        }
        let number = asked.fetch_add(1, Ordering::Relaxed).min(statuses.len() - 1);
        match statuses[number] {
            Some("400 Bad Request") => wire.answer("400 Bad Request", &[], b"Invalid session ID"),
            Some(status) => wire.answer(status, &[], b""),
            None => wire.hold(),
        }
    })
}

/// A client ends its session: checks the answer to the client, and the receipt.
fn check(statuses: &'static [Option<&'static str>], told: u16, fate: &str, how: &str) -> Value {
    let scene = Scene::set(Who::User).expect("asked before");
    let upstream = server(statuses);
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let session = open(&gateway, "x");
    let reply = gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &session)], b"");
    assert_eq!(reply.status, told, "{statuses:?}: {}", reply.text());
    no_session_is_left(&gateway);
    let receipt = receipt(&scene);
    let upstreams = &receipt["holdings"][0];
    assert_eq!((&upstreams["fate"], &upstreams["how"]), (&fate.into(), &how.into()), "{statuses:?}: {receipt}");
    assert_eq!(upstreams["tries"], upstream.of("DELETE").len(), "{receipt}");
    assert_eq!(upstreams["why"].is_string(), fate == "left", "{receipt}");
    assert_eq!(receipt["reason"]["kind"], "client_deleted");
    receipt
}

#[test]
fn receipts_say_how_a_session_was_deleted() {
    drop(or_skip!(Scene::set(Who::User)));
    check(&[Some("200 OK")], 200, "gone", "deleted");
    check(&[Some("204 No Content")], 204, "gone", "deleted");
    check(&[Some("202 Accepted")], 202, "gone", "deleted");
    check(&[Some("404 Not Found")], 404, "gone", "forgotten");
    check(&[Some("400 Bad Request")], 400, "gone", "forgotten");
    check(&[Some("405 Method Not Allowed")], 405, "left", "unsupported");
    check(&[Some("401 Unauthorized")], 401, "left", "denied");
    check(&[Some("403 Forbidden")], 403, "left", "denied");
    let receipt = check(&[Some("500 Oh"), Some("503 No"), Some("200 OK")], 200, "gone", "deleted");
    assert_eq!(receipt["holdings"][0]["tries"], 3);
}

/// A server that never answers a DELETE does not block the gateway. Its keeper sends the DELETE again.
#[test]
fn unanswered_delete_is_repeated_by_the_keeper() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = server(&[None, Some("200 OK")]);
    let text = format!(
        r#"{{"mcpServers": {{"x": {{"type": "http", "url": "{}"}}}}, "leash": {{"drain": "500ms"}}}}"#,
        upstream.url()
    );
    let file = config(&scene, &text);
    let mut gateway = Gateway::start(&scene, ["--config", &file]);
    open(&gateway, "x");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(), Some(0));
    // No other leash has started since.
    scene.wait_gone(&[]).expect("the keeper leaves when it is done");
    assert_eq!(upstream.of("DELETE").len(), 2);
    let receipt = receipt(&scene);
    let found = (&receipt["reason"]["kind"], &receipt["ended_by"], &receipt["holdings"][0]["fate"]);
    assert_eq!(found, (&"shutdown".into(), &"keeper".into(), &"gone".into()), "{receipt}");
}
