//! The lifecycle of the gateway itself: it stops on a signal, reloads its configuration, and refuses invalid settings.

use rustix::process::Signal;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, config, open, stdio_server};

#[test]
fn reload_only_affects_changed_servers() {
    let scene = or_skip!(Scene::set(Who::User));
    let echo = stdio_server(&scene);
    let three = format!(r#"{{"mcpServers": {{"a": {{{echo}}}, "b": {{{echo}}}, "c": {{{echo}}}}}}}"#);
    let file = config(&scene, &three);
    let mut gateway = Gateway::start(&scene, ["--config", &file]);
    let [a, b, c] = ["a", "b", "c"].map(|name| open(&gateway, name));
    // `a` stays, `b` is another program now, `c` is gone, `d` is new.
    config(
        &scene,
        &format!(r#"{{"mcpServers": {{"a": {{{echo}}}, "b": {{{echo}, "env": {{"X": "1"}}}}, "d": {{{echo}}}}}}}"#),
    );
    wait::until("the reload", || gateway.said().contains("reloaded;").then_some(()));
    assert_eq!(gateway.post("a", Some(&a), LIST).status, 200);
    wait::until("the old b to end", || (gateway.post("b", Some(&b), LIST).status == 404).then_some(()));
    assert_eq!(gateway.post("c", Some(&c), LIST).status, 404);
    open(&gateway, "b");
    open(&gateway, "d");
    // An invalid file changes nothing and is reported.
    config(&scene, r#"{"mcpServers": {"a": {"command": 1}}}"#);
    wait::until("the mistake", || gateway.said().contains("was not reloaded").then_some(()));
    assert_eq!(gateway.post("a", Some(&a), LIST).status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(), Some(0));
    scene.wait_gone(&[]).expect("nothing is left");
    let said = gateway.said();
    assert_eq!(said.matches("reconfigured").count(), 4, "b and c, ending and ended: {said}");
}

#[test]
fn stop_ends_everything_and_reports_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut gateway = Gateway::single(&scene, &[], &scene.tree("setsid", ["--mcp"]));
    let sessions: Vec<String> = (0..3).map(|_| open(&gateway, "x")).collect();
    assert_eq!(gateway.metric("leash_sessions{server=\"x\",state=\"live\"}"), Some(3.0));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(), Some(0));
    scene.wait_gone(&[]).expect("nothing is left");
    let history = scene.answer(["history", "--json"]).json();
    let receipts = history["receipts"].as_array().expect("a list");
    assert_eq!(receipts.len(), 3, "{history}");
    for receipt in receipts {
        assert_eq!(receipt["reason"]["kind"], "shutdown", "{receipt}");
        assert_eq!(receipt["holdings"][0]["fate"], "gone", "{receipt}");
        assert!(sessions.iter().any(|session| receipt["session"] == session.as_str()), "{receipt}");
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let stubborn = scene.tree("stubborn", [] as [&str; 0]);
    let mut gateway = Gateway::single(&scene, &["--grace", "1s", "--init-timeout", "1h"], &stubborn);
    let mut opening = gateway.connect();
    let body = initialize("2025-06-18");
    opening.send("POST", "/x/mcp", &testkit::http::POST, body.as_bytes()).expect("it is written");
    scene.census().wait_ready(wait::LIMIT).expect("the tree did not come up");
    gateway.signal(Signal::TERM);
    wait::until("the stop", || gateway.said().contains("stopping").then_some(()));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(), Some(0));
    // The keeper continues with the ladder.
    assert_eq!(scene.answer(["ps", "--json"]).json()["sessions"].as_array().map(Vec::len), Some(1));
    scene.wait_gone(&[]).expect("the keeper finishes it");
}

#[test]
fn address_in_use_is_reported() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::start(&scene, ["--name", "x", "--", "cat"]);
    let address = gateway.address().to_string();
    let answer = scene.answer(["serve", "--listen", &address, "--name", "x", "--", "cat"]);
    assert_eq!(answer.code, 125, "{answer:?}");
    assert!(answer.stderr.contains("cannot listen") && answer.stderr.contains("hint:"), "{answer:?}");
}

#[test]
fn public_address_without_a_token_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let answer = scene.answer(["serve", "--listen", listen, "--name", "x", "--", "cat"]);
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.stderr.contains("no token is set") && answer.stderr.contains("hint:"), "{answer:?}");
    }
}

#[test]
fn command_line_overrides_the_file_before_validation() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_TEST_TOKEN", "s3cret");
    let config = r#"{"mcpServers": {"a": {"command": "sh"}}, "leash": {"listen": "0.0.0.0:0"}}"#;
    std::fs::write(scene.dir().join(".mcp.json"), config).expect("cannot write the configuration");
    assert_eq!(scene.answer(["serve", "--check"]).code, 2);
    for fine in [["--token-env", "LEASH_TEST_TOKEN"], ["--listen", "127.0.0.1:0"]] {
        let answer = scene.answer([&["serve", "--check"], &fine[..]].concat());
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    let answer = scene.answer(["serve", "--check", "--listen", "[::]:0"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("no token is set") && answer.stderr.contains("hint:"), "{answer:?}");
}
