//! The effect of an abort on stdio servers, and the resources of a daemon after a thousand sessions.

use serde_json::{Value, json};
use testkit::control::{path, server};
use testkit::http::{Connection, POST};
use testkit::or_skip;
use testkit::wait::{self, LIMIT};

use super::Stage;

/// Sends a call and returns its connection.
fn begin(stage: &Stage, session: &Value, client: &str, message: &str) -> Connection {
    let mut connection = stage.gateway.connect();
    let headers = [POST[0], POST[1], ("mcp-session-id", client)];
    let path = format!("/{}/mcp", server(session, "a"));
    connection.send("POST", &path, &headers, message.as_bytes()).expect("it is sent");
    connection
}

#[test]
fn abort_cancels_pending_calls_and_keeps_the_session() {
    let stage = or_skip!(Stage::set());
    // It answers nothing, and echoes everything that it reads.
    let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("polite", "2s")}}));
    let client = stage.open(&session, "a");
    let hang = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"hang"}}}}"#);
    let mut calls: Vec<Connection> = (5..8).map(|id| begin(&stage, &session, &client, &hang(id))).collect();
    wait::until("all calls", || (stage.control.show(&session)["servers"][0]["inFlight"] == 3).then_some(()));
    let reply = stage.control.ask("POST", &path(&session, "/abort"), "");
    assert_eq!((reply.status, reply.json()), (200, json!({"aborted": 3})));
    for (id, call) in (5..8).zip(&mut calls) {
        let answer = call.reply().expect("an answer").json();
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "aborted"}}));
    }
    assert_eq!(stage.control.show(&session)["servers"][0]["inFlight"], 0);
    // The same tree continues.
    let before = session["servers"][0]["holdings"][0]["pid"].clone();
    assert_eq!(json!(stage.pid(&session, "a", &client)), before);
    assert_eq!(stage.control.ask("POST", &path(&session, "/abort"), "").json(), json!({"aborted": 0}));
    stage.control.end(&session);
    stage.gateway.stop();
}

/// After many sessions the daemon has as many descriptors and as little memory as before.
#[test]
fn many_sessions_leave_no_trace_in_the_daemon() {
    let mut stage = or_skip!(Stage::set());
    let request =
        json!({"mcpServers": {"a": stage.tree("polite", "2s")}, "ttl": "1h", "owner": {"pid": std::process::id()}});
    let round = |stage: &Stage| {
        let session = stage.control.create(&request);
        stage.open(&session, "a");
        stage.control.end(&session);
    };
    // The daemon's memory of the last sessions is full after a hundred.
    (0..110).for_each(|_| round(&stage));
    let settled = |stage: &Stage| {
        let mut least = stage.gateway.descriptors();
        wait::within(std::time::Duration::from_secs(2), || {
            least = least.min(stage.gateway.descriptors());
            None::<()>
        });
        least
    };
    // On a busy machine one batch of sessions may need more room than those before it. A leak grows with every batch.
    let grown: Vec<(u64, u64)> = (0..3)
        .map(|_| {
            let before = (settled(&stage), stage.gateway.memory());
            (0..60).for_each(|_| round(&stage));
            let after = (settled(&stage), stage.gateway.memory());
            assert_eq!(after.0, before.0, "descriptors");
            (before.1, after.1)
        })
        .take_while(|(before, after)| *after >= before + 1024 * 1024)
        .collect();
    assert!(grown.len() < 3, "memory grew in every batch: {grown:?}");
    stage.scene.census().wait_gone(LIMIT).expect("nothing is left");
    stage.gateway.stop();
}

#[test]
fn view_of_a_session_names_the_clients_of_its_servers() {
    let stage = or_skip!(Stage::set());
    let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("polite", "2s")}}));
    assert_eq!(session["servers"][0].get("clients"), None);
    let token = stage.open(&session, "a");
    let me = std::process::id();
    let client = wait::until("the client's process", || {
        let client = stage.control.show(&session)["servers"][0]["clients"][0].clone();
        (client["pid"] == me).then_some(client)
    });
    assert_eq!((&client["name"], &client["version"]), (&json!("testkit"), &json!("1")), "{client}");
    // The tree is a member of the session, and `ps` shows its client.
    let listed = stage.scene.answer(["ps", "--json", "--leashed"]).json();
    assert_eq!(listed["sessions"][0]["client"], client, "{listed}");
    let path = format!("/{}/mcp", server(&session, "a"));
    stage.gateway.ask("DELETE", &path, &[("mcp-session-id", &token)], b"");
    assert_eq!(stage.control.show(&session)["servers"][0].get("clients"), None);
    let history = stage.scene.answer(["history"]).stdout;
    assert!(history.contains(&format!("testkit ({me}) sent DELETE")), "{history}");
    stage.control.end(&session);
    stage.gateway.stop();
}
