//! The owners of a session: a process, a connection, a lease.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::control::{Control, Listening, path, server};
use testkit::http::POST;
use testkit::or_skip;
use testkit::wait::{self, LIMIT};

use super::{Stage, trees};

/// Waits for the end of a session that no caller requested, and returns its receipt.
fn ended(control: &Control, session: &Value) -> Value {
    let over = wait::until("the end of the session", || {
        let now = control.show(session);
        (now["state"] == "ended").then_some(now)
    });
    over["receipt"].clone()
}

#[test]
fn a_session_ends_with_its_process() {
    let mut stage = or_skip!(Stage::set());
    let mut owner = stage.scene.zoo(["idle"]).stdin(Stdio::null()).spawn().expect("it starts");
    let request = json!({"mcpServers": {"a": stage.tree("setsid", "300ms")}, "owner": {"pid": owner.id()}});
    let session = stage.control.create(&request);
    assert_eq!(session["owner"], json!({"kind": "pid", "pid": owner.id()}));
    stage.scene.census().wait_ready(LIMIT).expect("it runs");
    let client = stage.open(&session, "a");
    let mut events = stage.control.listen("");
    owner.kill().expect("it is our child");
    owner.wait().expect("it is our child");
    let receipt = ended(&stage.control, &session);
    stage.nothing_is_left();
    assert_eq!((&receipt["reason"]["kind"], &receipt["reason"]["pid"]), (&json!("owner_gone"), &json!(owner.id())));
    let names: Vec<String> = (0..3).filter_map(|_| events.event()).map(|(name, _)| name).collect();
    assert_eq!(names, ["owner-lost", "ending", "ended"]);
    assert_eq!(stage.gateway.post(&server(&session, "a"), Some(&client), "{}").status, 404);
    // The daemon refuses a session for an owner that is gone.
    let refused = stage.control.ask("POST", "/v1/sessions", &request.to_string());
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.json()["errors"][0]["pointer"], "/owner/pid");
    stage.gateway.stop();
}

#[test]
fn a_session_ends_with_its_connection() {
    let mut stage = or_skip!(Stage::set());
    let request = json!({"mcpServers": {"a": stage.tree("setsid", "300ms")}, "owner": {"connection": true}});
    let mut connection = stage.control.begin("POST", "/v1/sessions", &request.to_string());
    let head = connection.head().expect("an answer");
    assert_eq!((head.status, head.header("content-type")), (201, Some("text/event-stream")));
    let mut stream = Listening::on(connection);
    let (name, session) = stream.event().expect("the session");
    assert_eq!((name.as_str(), head.header("location")), ("session", Some(path(&session, "").as_str())));
    stage.scene.census().wait_ready(LIMIT).expect("it runs");
    stage.open(&session, "a");
    drop(stream);
    let receipt = ended(&stage.control, &session);
    stage.nothing_is_left();
    assert_eq!(receipt["reason"]["kind"], "client_left", "{receipt}");
    assert!(trees(&receipt).iter().all(|(fate, _)| *fate == "gone"), "{receipt}");
    stage.gateway.stop();
}

#[test]
fn a_lease_that_is_not_renewed_ends_a_session_in_the_middle_of_a_call() {
    let mut stage = or_skip!(Stage::set());
    let request = json!({"mcpServers": {"a": stage.tree("setsid", "300ms")}, "ttl": "1h"});
    let session = stage.control.create(&request);
    stage.scene.census().wait_ready(LIMIT).expect("it runs");
    let client = stage.open(&session, "a");
    let mut call = stage.gateway.connect();
    let hang = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hang"}}"#;
    let headers = [POST[0], POST[1], ("mcp-session-id", client.as_str())];
    call.send("POST", &format!("/{}/mcp", server(&session, "a")), &headers, hang.as_bytes()).expect("it is sent");
    wait::until("the call", || (stage.control.show(&session)["servers"][0]["inFlight"] == 1).then_some(()));
    let renewed = stage.control.ask("PUT", &path(&session, "/lease"), r#"{"ttl": "200ms"}"#);
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    let receipt = ended(&stage.control, &session);
    stage.nothing_is_left();
    assert_eq!(receipt["reason"]["kind"], "lease_expired", "{receipt}");
    let answer = call.reply().expect("the call is answered").json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32000)), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("lease")), "{answer}");
    stage.gateway.stop();
}

#[test]
fn pending_call_is_not_idle() {
    let stage = or_skip!(Stage::set());
    let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("polite", "300ms")}, "idle": "300ms"}));
    let client = stage.open(&session, "a");
    let mut call = stage.gateway.connect();
    let sleep = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":1500}}}"#;
    let headers = [POST[0], POST[1], ("mcp-session-id", client.as_str())];
    call.send("POST", &format!("/{}/mcp", server(&session, "a")), &headers, sleep.as_bytes()).expect("it is sent");
    let answer = call.reply().expect("an answer").json();
    assert!(answer["result"].is_object(), "{answer}");
    let receipt = ended(&stage.control, &session);
    assert_eq!(receipt["reason"]["kind"], "idle", "{receipt}");
    stage.gateway.stop();
}
