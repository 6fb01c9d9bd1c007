//! The start of a session: all of its servers run, or none does.

use serde_json::json;
use testkit::control::{path, server};
use testkit::fixture::Fixture;
use testkit::http::initialize;
use testkit::or_skip;
use testkit::wait::LIMIT;

use super::{Stage, trees, web};

#[test]
fn a_session_is_created_used_and_gone_when_the_call_returns() {
    let mut stage = or_skip!(Stage::set());
    let fixture = Fixture::http(&[]);
    let servers = json!({"a": stage.tree("setsid", "2s"), "b": stage.tree("daemon", "2s"), "web": web(&fixture)});
    let session = stage.control.create(&json!({"name": "job", "labels": {"n": "1"}, "mcpServers": servers}));
    stage.scene.census().wait_all_ready(2, LIMIT).expect("both run before the first client");
    let started = &session["servers"][0]["holdings"][0];
    assert_eq!(started["kind"], "tree", "{session}");

    // The first client gets the tree that was started, the next one a new tree.
    let first = stage.open(&session, "a");
    assert_eq!(json!(stage.pid(&session, "a", &first)), started["pid"], "{session}");
    let second = stage.open(&session, "a");
    assert_ne!(json!(stage.pid(&session, "a", &second)), started["pid"]);
    stage.open(&session, "web");
    stage.open(&session, "web");
    stage.scene.census().wait_all_ready(3, LIMIT).expect("the second client's tree runs");
    let now = stage.control.show(&session);
    let holdings = |at: usize| now["servers"][at]["holdings"].as_array().map(Vec::len);
    assert_eq!((holdings(0), holdings(1), holdings(2)), (Some(2), Some(1), Some(2)), "{now}");
    assert_eq!(fixture.report().open().len(), 2);

    let receipt = stage.control.end(&session);
    assert_eq!(fixture.report().open().len(), 0, "every upstream session is deleted");
    stage.nothing_is_left();
    assert_eq!(trees(&receipt).len(), 3, "{receipt}");
    assert!(trees(&receipt).iter().all(|(fate, _)| *fate == "gone"), "{receipt}");
    assert_eq!(receipt["holdings"].as_array().map(Vec::len), Some(5), "{receipt}");
    assert_eq!((&receipt["name"], &receipt["labels"]["n"]), (&json!("job"), &json!("1")));
    assert_eq!(stage.control.end(&session), receipt, "asked again, the same");
    assert_eq!(stage.gateway.post(&server(&session, "a"), Some(&first), "{}").status, 404);
    assert_eq!(stage.gateway.post(&server(&session, "a"), None, &initialize("2025-06-18")).status, 404);
    stage.gateway.stop();
}

#[test]
fn failed_server_prevents_the_session() {
    let mut stage = or_skip!(Stage::set());
    let fixture = Fixture::http(&[]);
    let servers =
        json!({"a": stage.tree("setsid", "300ms"), "b": {"command": "/nowhere/at-all"}, "web": web(&fixture)});
    let reply = stage.control.ask("POST", "/v1/sessions", &json!({"mcpServers": servers}).to_string());
    assert_eq!(reply.status, 502, "{}", reply.text());
    stage.nothing_is_left();
    let problem = reply.json();
    assert_eq!((&problem["type"], &problem["server"]), (&json!("urn:leash:problem:server-failed"), &json!("b")));
    assert!(problem["why"].as_str().is_some_and(|why| why.contains("/nowhere/at-all")), "{problem}");
    assert_eq!(stage.control.ask("GET", "/v1/sessions?all=true", "").json(), json!({"sessions": []}));
    stage.gateway.stop();
}

/// Another caller ends everything while a session starts, sooner or later.
#[test]
fn an_end_during_the_start_leaves_nothing() {
    let mut stage = or_skip!(Stage::set());
    let servers = json!({"a": stage.tree("setsid", "300ms"), "b": stage.tree("setsid", "300ms")});
    let request = json!({"mcpServers": servers}).to_string();
    for round in 0..12 {
        let mut begun = stage.control.begin("POST", "/v1/sessions", &request);
        for _ in 0..round {
            assert_eq!(stage.control.ask("GET", "/v1/version", "").status, 200);
        }
        let ended = stage.control.ask("DELETE", "/v1/sessions", "");
        assert_eq!(ended.status, 200, "{}", ended.text());
        let reply = begun.reply().expect("an answer");
        match reply.status {
            // Everything was started and ended by then.
            409 => assert_eq!(reply.json()["type"], "urn:leash:problem:ended", "{}", reply.text()),
            // The session was known before the end, or began after it.
            201 => drop(stage.control.end(&reply.json())),
            other => panic!("{other}: {}", reply.text()),
        }
        stage.nothing_is_left();
    }
    stage.gateway.stop();
}

/// A caller that disconnects does not know the session, so no caller could ever end it.
#[test]
fn a_caller_that_leaves_during_the_start_leaves_nothing() {
    let mut stage = or_skip!(Stage::set());
    // One connection fills the queue of this listener, and the kernel answers no further one, so that the start lasts
    // until the caller disconnects.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    rustix::net::listen(&silent, 0).expect("a queue of one connection");
    let address = silent.local_addr().expect("its address");
    let _waiting = std::net::TcpStream::connect(address).expect("the first connection");
    let url = format!("http://{address}/mcp");
    let request = json!({"mcpServers": {"a": stage.tree("setsid", "300ms"), "b": {"url": url}}}).to_string();
    for round in 0..6 {
        let caller = stage.control.begin("POST", "/v1/sessions", &request);
        let sessions = || stage.control.ask("GET", "/v1/sessions", "").json()["sessions"].clone();
        testkit::wait::until("a session that begins", || (sessions() != json!([])).then_some(()));
        // The tree exists, or is about to.
        for _ in 0..round {
            assert_eq!(sessions()[0]["state"], "starting");
        }
        drop(caller);
        testkit::wait::until("the end of the session", || (sessions() == json!([])).then_some(()));
        stage.nothing_is_left();
    }
    let told = stage.scene.answer(["history", "--json"]).json();
    let receipts = told["receipts"].as_array().expect("a list");
    assert!(receipts.len() >= 6 && receipts.iter().all(|receipt| receipt["reason"]["kind"] == "client_left"), "{told}");
    stage.gateway.stop();
}

#[test]
fn a_tree_that_leaves_before_its_first_client_is_replaced() {
    let stage = or_skip!(Stage::set());
    let session =
        stage.control.create(&json!({"mcpServers": {"a": {"command": "true"}, "b": stage.tree("polite", "2s")}}));
    testkit::wait::until("the unrequested end of a server", || {
        (stage.control.show(&session)["servers"][0]["holdings"] == json!([])).then_some(())
    });
    // The next client starts another tree, which exits as well; the session continues.
    let reply = stage.gateway.post(&server(&session, "a"), None, &initialize("2025-06-18"));
    assert_eq!(reply.status, 502, "{}", reply.text());
    stage.open(&session, "b");
    assert_eq!(stage.control.show(&session)["state"], "live");
    let receipt = stage.control.end(&session);
    assert_eq!(trees(&receipt).len(), 3, "{receipt}");
    assert_eq!(stage.control.ask("GET", &path(&session, ""), "").json()["receipt"], receipt);
    stage.gateway.stop();
}
