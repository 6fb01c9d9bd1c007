//! The timing of the ladder.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use testkit::host::{Host, Manner};
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{answer, check_gone, record_file, start, trivial};

#[test]
fn zero_kills_at_once() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = start(&mut scene, &Manner::default(), &["--grace", "0"], "mixed");
    host.close_stdin();
    check_gone(&scene, &[host.pid()]);
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["how"], "kill", "{history}");
}

/// Each further signal is a further step: with an hour between the steps nothing else can have caused it.
#[test]
fn signals_escalate() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = start(&mut scene, &Manner::default(), &["--grace", "1h"], "stubborn");
    let leash = host.server();
    wait::until("the end of a tree that ignores everything", || {
        // Signals that arrive faster than leash reads them are merged into one.
        leash.signal(Signal::TERM).expect("cannot signal leash");
        scene.wait_gone_within(std::time::Duration::from_millis(20), &[host.pid()]).ok()
    });
}

/// Makes leash begin an end with `begin`, in which no timer fires for an hour. A signal then causes the next step,
/// which the receipt must name.
fn check_next_step(tree: &str, begin: fn(&mut Host, &Handle), how: &str) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = start(&mut scene, &Manner::default(), &["--grace", "1h"], tree);
    let leash = host.server();
    begin(&mut host, &leash);
    wait::until("leash to be ending", || {
        let record: Value = serde_json::from_slice(&fs::read(record_file(&scene)?).ok()?).ok()?;
        (record["phase"] == "ending").then_some(())
    });
    assert!(scene.census().is_populated(), "the first step was too much");
    leash.signal(Signal::INT).expect("cannot signal leash");
    check_gone(&scene, &[host.pid()]);
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["how"], how, "{history}");
}

/// The host closed stdin, which this server ignores: leash passes the signal on.
#[test]
fn first_signal_after_eof_terminates() {
    check_next_step("ignores-eof", |host, _| host.close_stdin(), "term");
}

/// The server ignores the first signal too: the second kills it.
#[test]
fn second_signal_kills() {
    check_next_step("stubborn", |_, leash| leash.signal(Signal::INT).expect("cannot signal leash"), "kill");
}

#[test]
fn invalid_grace_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = answer(&mut trivial(&scene, &["--grace", "soon"]));
    assert_eq!(answer.code, 2, "{answer:?}");
}
