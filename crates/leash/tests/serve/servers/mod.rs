//! Servers that misbehave behind the gateway: their clients get an error, and nothing of them is left.

mod deletes;
mod stdio;
mod upstream;

use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST};
use testkit::wait;

use super::{LIST, live, open, receipts};

/// Sends a request in a session.
fn ask(gateway: &Gateway, session: &str, body: &str) -> Connection {
    let mut client = gateway.connect();
    let headers = [POST[0], POST[1], ("mcp-session-id", session)];
    client.send("POST", "/x/mcp", &headers, body.as_bytes()).expect("it is sent");
    client
}

/// Opens the event stream of the server.
fn listen(gateway: &Gateway, session: &str) -> Connection {
    let mut client = gateway.connect();
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", session)];
    client.send("GET", "/x/mcp", &headers, b"").expect("it is sent");
    assert_eq!(client.head().expect("an answer").status, 200);
    client
}

fn no_session_is_left(gateway: &Gateway) {
    wait::until("the sessions to end", || {
        let ending = gateway.metric("leash_sessions{server=\"x\",state=\"ending\"}").unwrap_or_default();
        (live(gateway, "x") + ending == 0.0).then_some(())
    });
}

/// The only receipt.
fn receipt(scene: &testkit::scene::Scene) -> Value {
    let mut all = wait::until("a receipt", || Some(receipts(scene)).filter(|receipts| !receipts.is_empty()));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}
