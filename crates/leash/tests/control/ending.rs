//! The ends of a session, with servers that ignore signals and with daemons that stop.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::control::{Control, path};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::host::Manner;
use testkit::or_skip;
use testkit::wait::{self, LIMIT};

use super::{Stage, trees, web};

#[test]
fn end_continues_without_a_waiting_caller() {
    let mut stage = or_skip!(Stage::set());
    let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("stubborn", "200ms")}}));
    stage.scene.census().wait_ready(LIMIT).expect("it runs");
    let mut events = stage.control.listen("");
    let reply = stage.control.ask("DELETE", &path(&session, "?wait=false"), "");
    assert_eq!((reply.status, &reply.json()["state"]), (202, &json!("ending")), "{}", reply.text());
    assert_eq!(events.event().map(|(name, _)| name).as_deref(), Some("ending"));
    let (name, ended) = events.event().expect("it goes on");
    assert_eq!((name.as_str(), &ended["session"]), ("ended", &session["id"]));
    stage.nothing_is_left();
    assert_eq!(trees(&ended["receipt"]), [("gone", "kill")], "{ended}");
    assert_eq!(stage.control.end(&session), ended["receipt"]);
    stage.gateway.stop();
}

/// A run that joined by the session's id is a member like any other, in the same receipt.
#[test]
fn a_run_that_joined_ends_with_the_session() {
    for force in [false, true] {
        let mut stage = or_skip!(Stage::set());
        let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("polite", "200ms")}}));
        let other = stage.control.create(&json!({"mcpServers": {"a": stage.tree("polite", "200ms")}}));
        let grace = if force { "1h" } else { "100ms" };
        let options = ["--session", session["id"].as_str().expect("an id"), "--grace", grace];
        let words = stage.scene.run_words(options, &stage.scene.tree("stubborn", [] as [&str; 0]));
        let host = stage.scene.host(&Manner::default(), None, &words);
        stage.scene.census().wait_all_ready(3, LIMIT).expect("all run");
        let reply = stage.control.ask("DELETE", &path(&session, if force { "?force=true" } else { "" }), "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let receipt = reply.json();
        assert_eq!(trees(&receipt).len(), 2, "{receipt}");
        assert!(trees(&receipt).iter().all(|(fate, _)| *fate == "gone"), "{receipt}");
        assert_eq!(stage.control.show(&other)["state"], "live", "another session is not touched");
        assert_eq!(stage.control.ask("DELETE", &path(&other, ""), "").status, 200);
        assert!(!stage.scene.census().is_populated(), "the call returned before everything was gone");
        drop(host);
        stage.nothing_is_left();
        stage.gateway.stop();
    }
}

/// The grace is longer than the test's timeout: a call that returns did not wait for it.
#[test]
fn force_ends_without_grace() {
    let mut stage = or_skip!(Stage::set());
    for escalated in [false, true] {
        let session = stage.control.create(&json!({"mcpServers": {"a": stage.tree("stubborn", "1h")}}));
        stage.scene.census().wait_first(LIMIT).expect("it runs");
        // Another caller has asked for a normal end before, and still waits.
        let polite = escalated.then(|| stage.control.begin("DELETE", &path(&session, ""), ""));
        if escalated {
            wait::until("the end to begin", || (stage.control.show(&session)["state"] == "ending").then_some(()));
        }
        let reply = stage.control.ask("DELETE", &path(&session, "?force=true"), "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        stage.nothing_is_left();
        assert_eq!(trees(&reply.json()), [("gone", "kill")], "{}", reply.text());
        if let Some(mut polite) = polite {
            assert_eq!(polite.reply().expect("an answer").json(), reply.json(), "the same receipt");
        }
    }
    stage.gateway.stop();
}

#[test]
fn all_sessions_end_at_the_same_time() {
    let mut stage = or_skip!(Stage::set());
    let ids: Vec<Value> = (0..4)
        .map(|_| stage.control.create(&json!({"mcpServers": {"a": stage.tree("setsid", "300ms")}}))["id"].clone())
        .collect();
    stage.scene.census().wait_all_ready(4, LIMIT).expect("all run");
    let reply = stage.control.ask("DELETE", "/v1/sessions?force=true", "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    stage.nothing_is_left();
    let ended: Vec<Value> = reply.json()["receipts"]
        .as_array()
        .expect("receipts")
        .iter()
        .map(|receipt| receipt["session"].clone())
        .collect();
    assert_eq!(ended, ids);
    stage.gateway.stop();
}

/// The daemon is told to stop in the middle of an end: the waiting caller gets the receipt, and nothing is left.
#[test]
fn a_daemon_that_stops_during_an_end_finishes_it() {
    let mut stage = or_skip!(Stage::set());
    let fixture = Fixture::http(&[]);
    let servers = json!({"a": stage.tree("stubborn", "400ms"), "web": web(&fixture)});
    let session = stage.control.create(&json!({"mcpServers": servers}));
    let other = stage.control.create(&json!({"mcpServers": servers}));
    stage.scene.census().wait_all_ready(2, LIMIT).expect("both run");
    stage.open(&session, "web");
    stage.open(&other, "web");
    let mut ending = stage.control.begin("DELETE", &path(&session, ""), "");
    wait::until("the end to begin", || (stage.control.show(&session)["state"] == "ending").then_some(()));
    stage.gateway.signal(Signal::TERM);
    let receipt = ending.reply().expect("an answer").json();
    assert_eq!(
        (&receipt["reason"]["kind"], trees(&receipt)),
        (&json!("requested"), vec![("gone", "kill")]),
        "{receipt}"
    );
    assert_eq!(stage.gateway.wait(), Some(0), "{}", stage.gateway.said());
    stage.scene.wait_gone(&[]).expect("nothing is left");
    assert_eq!(fixture.report().open().len(), 0);
}

/// The daemon is killed: the keepers end the trees, and its own keeper deletes the upstream sessions.
#[test]
fn a_killed_daemon_leaves_nothing() {
    let mut stage = or_skip!(Stage::set());
    let fixture = Fixture::http(&[]);
    let servers = json!({"a": stage.tree("setsid", "300ms"), "web": web(&fixture)});
    let session = stage.control.create(&json!({"mcpServers": servers}));
    stage.scene.census().wait_ready(LIMIT).expect("it runs");
    stage.open(&session, "web");
    stage.gateway.signal(Signal::KILL);
    assert_eq!(stage.gateway.wait(), None);
    stage.scene.wait_gone(&[]).expect("the keepers end the trees and the session");
    assert_eq!(fixture.report().open().len(), 0);
    let next = Gateway::single(&stage.scene, &[], &["cat".into()]);
    let control = Control::of(&stage.scene);
    assert_eq!(control.ask("GET", &path(&session, ""), "").status, 404, "no daemon has seen its end");
    next.stop();
}

#[test]
fn the_reason_names_the_one_that_asked_for_the_end() {
    let mut stage = or_skip!(Stage::set());
    let servers = json!({"mcpServers": {"a": stage.tree("polite", "300ms")}});
    let ended = |stage: &mut Stage, by: &str| {
        let session = stage.control.create(&servers);
        let id = session["id"].as_str().expect("an id").to_owned();
        match by {
            "api" => assert_eq!(stage.control.ask("DELETE", &path(&session, ""), "").status, 200),
            "command" => assert_eq!(stage.scene.answer(["end", &id]).code, 0),
            _ => {
                stage.gateway.signal(Signal::TERM);
                assert_eq!(stage.gateway.wait(), Some(0), "{}", stage.gateway.said());
            }
        }
        let history = stage.scene.answer(["history"]).stdout;
        // A table shows the beginning of an id.
        let lines: Vec<String> = history.lines().filter(|line| line.contains(&id[..8])).map(str::to_owned).collect();
        assert!(!lines.is_empty(), "{history}");
        lines
    };
    for (by, reason) in
        [("api", "ended through the control API"), ("command", "leash end"), ("stop", "the gateway stopped")]
    {
        let lines = ended(&mut stage, by);
        // The receipt of the session, and that of its tree.
        assert!(lines.iter().all(|line| line.contains(reason)), "{by}: {lines:?}");
    }
}
