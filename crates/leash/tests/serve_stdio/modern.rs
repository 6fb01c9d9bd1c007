//! 2026-07-28: no sessions, one tree for a principal.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, Reply};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LATEST, events, gateway, read_events};

const MODERN: &str = "2026-07-28";

/// A modern server.
fn modern(scene: &Scene, options: &[&str]) -> Gateway {
    let server = ["stdio", "--era", "modern"].map(Into::into);
    let words: Vec<_> = std::iter::once(scene.fixture_path().into_os_string()).chain(server).collect();
    Gateway::single(scene, options, &words)
}

fn request(id: &Value, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn call(id: &Value, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// Sends a request, with the credential of a principal.
fn begin(gateway: &Gateway, message: &Value, credential: Option<&str>) -> Connection {
    let mut connection = gateway.connect();
    let mut headers = POST.to_vec();
    headers.push(("mcp-protocol-version", MODERN));
    headers.push(("mcp-method", message["method"].as_str().expect("a method")));
    headers.extend(message["params"]["name"].as_str().map(|name| ("mcp-name", name)));
    headers.extend(credential.map(|credential| ("authorization", credential)));
    connection.send("POST", "/x/mcp", &headers, message.to_string().as_bytes()).expect("it is written");
    connection
}

fn ask(gateway: &Gateway, message: &Value) -> Reply {
    begin(gateway, message, None).reply().expect("an answer")
}

fn trees(gateway: &Gateway) -> (f64, f64) {
    let value = |line: &str| gateway.metric(line).unwrap_or_default();
    (value("leash_trees{server=\"x\"}"), value("leash_trees_started_total{server=\"x\"}"))
}

#[test]
fn requests_of_one_principal_share_a_tree() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let discovered = ask(&gateway, &request(&json!("d"), "server/discover", json!({})));
    assert_eq!((discovered.status, &discovered.json()["id"]), (200, &json!("d")), "{}", discovered.text());
    assert_eq!(discovered.header("mcp-session-id"), None);
    assert_eq!(trees(&gateway), (1.0, 1.0), "the question was the client's own, and asked once");
    // The same id at the same time, by independent clients.
    let list = request(&json!(1), "tools/list", json!({}));
    let mut lists = [0, 1, 2].map(|_| begin(&gateway, &list, None));
    for connection in &mut lists {
        let reply = connection.reply().expect("an answer");
        assert_eq!((reply.status, &reply.json()["id"]), (200, &json!(1)));
        assert!(reply.json()["result"]["tools"].is_array(), "{}", reply.text());
    }
    assert_eq!(trees(&gateway), (1.0, 1.0));
    let other = begin(&gateway, &list, Some("Bearer other")).reply().expect("an answer");
    assert_eq!(other.status, 200);
    assert_eq!(trees(&gateway), (2.0, 2.0), "another principal has another tree");
}

#[test]
fn an_idle_tree_ends_and_the_next_request_starts_one() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &["--idle", "300ms"]);
    let list = request(&json!(1), "tools/list", json!({}));
    assert_eq!(ask(&gateway, &list).status, 200);
    wait::until("idleness", || (trees(&gateway).0 == 0.0).then_some(()));
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
    assert_eq!(ask(&gateway, &list).status, 200);
    assert_eq!(trees(&gateway).1, 2.0);
    wait::until("idleness again", || (trees(&gateway).0 == 0.0).then_some(()));
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(receipt["reason"]["kind"], "idle", "{receipt}");
}

#[test]
fn errors_have_the_right_http_status() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let check = |message: &Value, status: u16, code: i64| {
        let reply = ask(&gateway, message);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(code)), "{}", reply.text());
        assert_eq!(reply.json()["id"], message["id"]);
    };
    check(&request(&json!("u"), "no/such/method", json!({})), 404, -32601);
    let mut bare = request(&json!(1), "tools/list", json!({}));
    bare["params"]["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": MODERN});
    check(&bare, 400, -32602);
    // Headers that contradict the body.
    let list = request(&json!(2), "tools/list", json!({})).to_string();
    for headers in [
        vec![("mcp-method", "tools/list")],
        vec![("mcp-protocol-version", MODERN)],
        vec![("mcp-protocol-version", MODERN), ("mcp-method", "tools/call")],
        vec![("mcp-protocol-version", "2026-07-29"), ("mcp-method", "tools/list")],
    ] {
        let all: Vec<_> = POST.into_iter().chain(headers).collect();
        let reply = gateway.ask("POST", "/x/mcp", &all, list.as_bytes());
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(-32020)), "{all:?}: {}", reply.text());
    }
    let version = [POST[0], POST[1], ("mcp-protocol-version", MODERN)];
    for (body, status) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#, 202),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, 400),
        (r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#, 400),
    ] {
        assert_eq!(gateway.ask("POST", "/x/mcp", &version, body.as_bytes()).status, status, "{body}");
    }
    for method in ["GET", "DELETE"] {
        let reply = gateway.ask(method, "/x/mcp", &[POST[1], ("mcp-protocol-version", MODERN)], b"");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    }
}

#[test]
fn a_legacy_server_makes_clients_fall_back() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    for _ in 0..2 {
        for method in ["server/discover", "tools/list"] {
            let reply = ask(&gateway, &request(&json!(5), method, json!({})));
            assert_eq!(
                (reply.status, &reply.json()["error"]["code"], &reply.json()["id"]),
                (400, &json!(-32000), &json!(5))
            );
        }
    }
    assert_eq!(trees(&gateway).1, 1.0, "it was asked once");
    scene.wait_gone(&[gateway.pid()]).expect("the tree that was asked is gone");
    let client = super::Client::open(&gateway, LATEST);
    assert_eq!(client.post(&super::call(1, "echo", json!({}))).status, 200);
}

/// The counters of the server about its calls.
fn census(gateway: &Gateway) -> Value {
    let reply = ask(gateway, &call(&json!("census"), "census", json!({})));
    let text = reply.json()["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
    serde_json::from_str(&text).expect("facts are JSON")
}

#[test]
fn closed_connection_cancels_its_request() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let asleep = begin(&gateway, &call(&json!(7), "sleep", json!({"ms": 3_600_000, "steps": 1})), None);
    wait::until("the call to begin", || (census(&gateway)["asleep"] == 1).then_some(()));
    assert_eq!(census(&gateway)["cancelled"], 0);
    drop(asleep);
    wait::until("the call to be cancelled", || (census(&gateway)["cancelled"] == 1).then_some(()));
    assert_eq!(trees(&gateway), (1.0, 1.0), "the server goes on");
}

#[test]
fn subscription_has_the_id_of_its_client() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = |id: &str| {
        let mut connection = begin(&gateway, &request(&json!(id), "subscriptions/listen", wanted.clone()), None);
        let head = connection.head().expect("an answer");
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        connection
    };
    let mut streams = ["a", "b"].map(|id| (id, listen(id)));
    let name = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    for (id, connection) in &mut streams {
        let first = read_events(connection, 1);
        let message = first[0].message.as_ref().expect("a message");
        assert_eq!(message["method"], "notifications/subscriptions/acknowledged", "{message}");
        assert_eq!(name(message), *id, "{message}");
        assert_eq!(first[0].id, None, "there is nothing to resume");
    }
    let heard = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // This server acknowledges a subscription a moment before it is active, so the test triggers changes until both
        // clients got one.
        scope.spawn(|| {
            wait::until("both to hear of a change", || {
                let change = ask(&gateway, &call(&json!(1), "test_trigger_tool_change", json!({})));
                assert_eq!(change.status, 200);
                heard.load(Ordering::Relaxed).then_some(())
            });
        });
        for (id, connection) in &mut streams {
            let told = read_events(connection, 1);
            let message = told[0].message.as_ref().expect("a message");
            assert_eq!((&message["method"], name(message)), (&json!("notifications/tools/list_changed"), json!(id)));
        }
        heard.store(true, Ordering::Relaxed);
    });
}

#[test]
fn progress_has_the_clients_token() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let mut message = call(&json!("p"), "sleep", json!({"ms": 10, "steps": 2}));
    message["params"]["_meta"]["progressToken"] = json!("token");
    let told = events(&ask(&gateway, &message).text());
    let (answer, progress) = told.split_last().expect("an answer");
    assert!(!progress.is_empty(), "{told:?}");
    for event in progress {
        assert_eq!(event.message.as_ref().expect("a message")["params"]["progressToken"], "token");
    }
    assert_eq!(answer.message.as_ref().expect("an answer")["id"], "p");
}

#[test]
fn a_crash_is_answered_and_the_next_request_starts_a_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = modern(&scene, &[]);
    let mut asleep = begin(&gateway, &call(&json!(7), "sleep", json!({"ms": 3_600_000, "steps": 1})), None);
    wait::until("the call to begin", || (census(&gateway)["asleep"] == 1).then_some(()));
    let crash = ask(&gateway, &call(&json!(1), "crash", json!({})));
    assert_eq!((crash.status, &crash.json()["error"]["code"]), (200, &json!(-32000)), "{}", crash.text());
    assert_eq!(asleep.reply().expect("an answer").json()["id"], 7);
    assert_eq!(census(&gateway)["asleep"], 0);
    assert_eq!(trees(&gateway).1, 2.0);
}
