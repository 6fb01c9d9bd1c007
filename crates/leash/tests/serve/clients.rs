//! The gateway shows its clients: in `ps`, in receipts, and in its own lines.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::POST;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{both, nothing_is_left, receipts};

/// Opens a session as a client that says this of itself.
fn open_as(gateway: &Gateway, server: &str, client_info: &Value) -> String {
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string();
    let reply = gateway.ask("POST", &format!("/{server}/mcp"), &POST, body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("mcp-session-id").expect("a session").to_owned()
}

/// The clients in `ps --json`, by the server's name.
fn listed(scene: &Scene, server: &str) -> Value {
    let all = scene.answer(["ps", "--json", "--leashed"]).json();
    let members = ["sessions", "upstream"].map(|kind| all[kind].as_array().cloned().unwrap_or_default()).concat();
    members.iter().find(|member| member["name"] == server).map(|member| member["client"].clone()).unwrap_or_default()
}

#[test]
fn clients_are_shown_with_name_pid_and_address() {
    let scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""grace": "300ms""#);
    let me = std::process::id();
    let hostile = "cla\u{1b}[2Jude\n".to_owned() + &"x".repeat(10_000);
    for (server, name, shown) in [
        ("stdio", "claude", "claude".to_owned()),
        ("http", &*hostile, format!(r"cla\u{{1b}}[2Jude\n{}...", "x".repeat(60))),
    ] {
        let session = open_as(&gateway, server, &json!({"name": name, "version": "2.1"}));
        wait::until("the client's process", || (listed(&scene, server)["pid"] == me).then_some(()));
        let client = listed(&scene, server);
        assert_eq!((&client["name"], &client["version"]), (&json!(shown), &json!("2.1")), "{client}");
        assert!(client["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{client}");
        let short = format!("{shown} ({me})");
        let table = scene.answer(["ps", "--leashed"]).stdout;
        assert!(table.contains(&short), "{table}");
        let details = scene.answer(["ps", "--leashed", "-v"]).stdout;
        assert!(details.contains(&format!("  client: {shown} 2.1, pid {me}, 127.0.0.1:")), "{details}");
        assert!(gateway.said().contains(&format!(" for {shown} (")), "{}", gateway.said());
        gateway.ask("DELETE", &format!("/{server}/mcp"), &[("mcp-session-id", &session)], b"");
        let history = scene.answer(["history"]).stdout;
        assert!(history.contains(&format!("{short} sent DELETE")), "{history}");
        wait::until("the ledger to forget it", || listed(&scene, server).is_null().then_some(()));
    }
    let receipts = receipts(&scene);
    assert_eq!(receipts.len(), 2, "{receipts:?}");
    assert!(receipts.iter().all(|receipt| receipt["client"]["pid"] == me), "{receipts:?}");
}

fn start(scene: &Scene, gateway: &Gateway) -> Child {
    let mut command = scene.zoo(["http-client", "hold", &gateway.url("stdio"), &gateway.url("http")]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start a client");
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it says something");
    assert_eq!(line, "ready\n", "{}", gateway.said());
    client
}

#[test]
fn receipt_says_which_client_is_gone() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "100ms", "grace": "300ms""#);
    let mut client = start(&scene, &gateway);
    let gone = format!("testkit ({}) gone", client.id());
    client.kill().expect("it is our child");
    client.wait().expect("it is our child");
    nothing_is_left(&mut scene, &gateway, &fixture);
    let history = scene.answer(["history"]).stdout;
    assert_eq!(history.matches(&gone).count(), 2, "{history}");
    wait::until("both lines", || (gateway.said().matches(&gone).count() == 4).then_some(()));
}

/// The next gateway at the address continues with the sessions, and knows their clients.
#[test]
fn clients_of_a_killed_gateway_are_known_to_the_next() {
    let scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let listen = format!("127.0.0.1:{port}");
    let words = ["--name", "http", "--url", fixture.url()];
    let mut gateway = Gateway::start_at(&scene, &listen, words);
    open_as(&gateway, "http", &json!({"name": "claude", "version": "2.1"}));
    wait::until("the client's process", || listed(&scene, "http")["pid"].is_i64().then_some(()));
    let before = listed(&scene, "http");
    gateway.signal(rustix::process::Signal::KILL);
    gateway.wait();
    let next = Gateway::start_at(&scene, &listen, words);
    assert!(next.said().contains("continuing with 1 session of"), "{}", next.said());
    assert_eq!(listed(&scene, "http"), before);
    next.stop();
}
