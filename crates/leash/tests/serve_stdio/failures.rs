//! Servers and clients that misbehave.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{Client, LATEST, call, events, gateway, read_events};

#[test]
fn crash_answers_every_request_at_once() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let mut hanging = client.begin(&call(1, "hang", json!({})));
    hanging.head().expect("a stream");
    let (mut listener, _) = client.get(None);
    let crash = client.post(&call(2, "exit", json!({})));
    assert_eq!((crash.status, &crash.json()["id"]), (200, &json!(2)));
    assert!(crash.json()["error"]["message"].as_str().expect("a message").contains("exited"));
    let told = read_events(&mut hanging, 2);
    let error = told[1].message.as_ref().expect("an answer");
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32000)));
    assert_eq!(hanging.chunk().expect("an end"), None);
    while listener.chunk().expect("an end").is_some() {}
    assert_eq!(client.post(&call(3, "echo", json!({}))).status, 404);
    assert_eq!(client.get(None).1.status, 404);
    assert_eq!(client.delete(), 404);
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(receipt["reason"]["kind"], "server_exited", "{receipt}");
}

#[test]
fn garbage_is_dropped_and_reported_once() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let garbage = "Server listening on stdio\n{\"level\":\"info\"}\n\n[1,2]\n{\"jsonrpc\":\"2.0\",\"id\":1,\"res";
    let reply = client.post(&call(1, "say", json!({"text": garbage})));
    assert_eq!(reply.header("content-type"), Some("application/json"), "{}", reply.text());
    assert_eq!(reply.json()["id"], 1);
    // An empty line does not count.
    assert_eq!(gateway.metric("leash_garbage_lines_total{server=\"x\"}"), Some(4.0));
    wait::until("a warning", || gateway.said().contains("not a JSON-RPC message").then_some(()));
    client.post(&call(2, "say", json!({"text": garbage})));
    assert_eq!(gateway.said().matches("not a JSON-RPC message").count(), 1, "{}", gateway.said());
}

#[test]
fn a_server_that_does_not_answer_initialize_is_given_up() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--init-timeout", "300ms"], &[scene.zoo_path().into(), "idle".into()]);
    let reply = gateway.post("x", None, &initialize(LATEST));
    assert_eq!((reply.status, &reply.json()["error"]["code"], &reply.json()["id"]), (504, &json!(-32000), &json!(0)));
    assert_eq!(reply.header("mcp-session-id"), None);
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
}

#[test]
fn failed_start_of_a_server_is_reported_with_the_reason() {
    let scene = or_skip!(Scene::set(Who::User));
    // The program exists when the gateway starts, and is gone when a session needs it.
    let program = scene.dir().join("short-lived");
    std::fs::copy(scene.zoo_path(), &program).expect("cannot copy a program");
    let gateway = Gateway::single(&scene, &[], &[program.clone().into_os_string(), "idle".into()]);
    std::fs::remove_file(&program).expect("it was there");
    let reply = gateway.post("x", None, &initialize(LATEST));
    assert_eq!((reply.status, &reply.json()["id"]), (502, &json!(0)), "{}", reply.text());
    let hint = "check the path; it is taken relative to `cwd`";
    let message = format!("Bad Gateway: command `{}` was not found; {hint}", program.display());
    assert_eq!(reply.json()["error"]["message"], message);
    gateway.wait_metric("leash_sessions_ended_total{server=\"x\",reason=\"not_initialized\"}", 1.0);
}

/// Only the keeper notices the failure.
#[test]
fn failed_exec_is_reported_with_the_reason() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = scene.dir().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("cannot write a file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("cannot set its mode");
    let gateway = Gateway::single(&scene, &[], &[script.clone().into_os_string()]);
    let reply = gateway.post("x", None, &initialize(LATEST));
    assert_eq!(reply.status, 502, "{}", reply.text());
    let cause = "No such file or directory (os error 2)";
    let hint = "the file is not a program this machine can run, or its interpreter is missing";
    let message = format!("Bad Gateway: cannot execute `{}`: {cause}; {hint}", script.display());
    assert_eq!(reply.json()["error"]["message"], message);
}

#[test]
fn exit_before_initialize_is_answered_is_reported() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &[scene.zoo_path().into(), "exit".into(), "3".into()]);
    let reply = gateway.post("x", None, &initialize(LATEST));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (502, &json!(-32000)), "{}", reply.text());
    assert_eq!(reply.header("mcp-session-id"), None);
}

#[test]
fn a_client_that_does_not_wait_for_initialize_leaves_nothing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    // A tree echoes its input, which would be a kind of answer: this one reads nothing.
    let silent = ["sh", "-c", r#"tail -f /dev/null | "$@""#, "sh"].map(OsString::from);
    let silent = [silent.as_slice(), &scene.tree("polite", [] as [&str; 0])].concat();
    let gateway = Gateway::single(&scene, &["--init-timeout", "1h"], &silent);
    let mut opening = gateway.connect();
    opening.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    scene.census().wait_ready(wait::LIMIT).expect("the tree did not come up");
    drop(opening);
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
    gateway.wait_metric("leash_sessions_ended_total{server=\"x\",reason=\"client_left\"}", 1.0);
}

/// This server echoes its input: it asks the client to initialize, and the client's answer becomes its own.
#[test]
fn a_server_may_speak_before_it_answers_initialize() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &[scene.zoo_path().into(), "echo".into()]);
    let mut opening = gateway.connect();
    opening.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    let head = opening.head().expect("an answer");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let session = head.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(read_events(&mut opening, 1)[0].message.as_ref().expect("a request")["method"], "initialize");
    let client = Client { gateway: &gateway, session };
    let result = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": LATEST}});
    assert_eq!(client.post(&result).status, 202);
    assert_eq!(read_events(&mut opening, 1)[0].message, Some(result));
    assert_eq!(opening.chunk().expect("an end"), None);
    // A refusal ends the session, and is passed on.
    let mut opening = gateway.connect();
    opening.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    let session = opening.head().expect("an answer").header("mcp-session-id").expect("a session").to_owned();
    read_events(&mut opening, 1);
    let client = Client { gateway: &gateway, session };
    let refusal = json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -1, "message": "no"}});
    client.post(&refusal);
    assert_eq!(read_events(&mut opening, 1)[0].message, Some(refusal));
    wait::until("the refused session to be over", || {
        (client.post(&json!({"jsonrpc": "2.0", "method": "x"})).status == 404).then_some(())
    });
}

#[test]
fn second_initialize_in_a_session_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let again = gateway.post("x", Some(&client.session), &initialize(LATEST));
    assert_eq!((again.status, &again.json()["error"]["code"]), (400, &json!(-32600)));
    let lost = gateway.post("x", Some("nobody"), &initialize(LATEST));
    assert_eq!(lost.status, 200, "a client that begins anew may still name the session it lost");
}

#[test]
fn version_must_be_the_negotiated_one() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    // A server may agree on any version, and its session then uses that version.
    for agreed in [LATEST, "2026-07-28", "2031-01-01"] {
        let client = Client::open(&gateway, agreed);
        let status = |version: &str| {
            let headers =
                [POST[0], POST[1], ("mcp-session-id", client.session.as_str()), ("mcp-protocol-version", version)];
            gateway.ask("POST", "/x/mcp", &headers, call(1, "echo", json!({})).to_string().as_bytes()).status
        };
        assert_eq!(status(agreed), 200);
        assert_eq!(status("2025-03-26"), 200);
        assert_eq!(status("1999-01-01"), 400);
        assert_eq!(client.delete(), 200);
    }
}

#[test]
fn a_listener_that_answers_no_ping_is_gone() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &["--keep-alive", "200ms"]);
    let pings = |text: &str| -> Vec<Value> {
        let pings = events(text).into_iter().filter_map(|event| event.message);
        pings.filter(|message| message["method"] == "ping").map(|ping| ping["id"].clone()).collect()
    };
    // A listener that answers the pings stays; the server sees none of them.
    let there = Client::open(&gateway, LATEST);
    let (mut listener, _) = there.get(None);
    let gone = Client::open(&gateway, LATEST);
    let (_silent, _) = gone.get(None);
    let silent = || gateway.metric("leash_sessions_ended_total{server=\"x\",reason=\"client_silent\"}");
    let mut text = String::new();
    let mut answered = 0;
    // The test sends no request in the silent session: any message of a client would show that it is alive.
    wait::until("the silent one to be given up", || {
        let chunk = listener.chunk().expect("a stream").expect("it goes on");
        text.push_str(&String::from_utf8(chunk).expect("events are text"));
        for id in &pings(&text)[answered..] {
            let answer = there.post(&json!({"jsonrpc": "2.0", "id": id, "result": {}}));
            assert_eq!(answer.status, 202);
            answered += 1;
        }
        (silent() == Some(1.0)).then_some(())
    });
    assert!(answered >= 3, "{text}");
    assert_eq!(there.post(&call(1, "echo", json!({}))).status, 200);
    assert_eq!(gone.post(&call(1, "echo", json!({}))).status, 404);
    assert_eq!(silent(), Some(1.0));
}
