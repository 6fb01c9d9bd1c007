//! Members that fork into an existing PID namespace. Its first process adopts the orphans there, so they are neither
//! our descendants nor our children.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use testkit::host::{Host, Manner};
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::attacks::forged_end;
use super::{check_gone, record_file, start_words};

/// A PID namespace that leash did not make, like those of bwrap or of a browser's sandbox.
struct Sandbox {
    outside: Child,
    first: Handle,
}

impl Sandbox {
    fn open(scene: &Scene, who: Who) -> Sandbox {
        let mut command = scene.zoo(["ns"]);
        if let Who::User = who {
            command.arg("--user");
        }
        command.args(["--pid", "--init", "--"]).arg(scene.zoo_path()).arg("idle").stdin(Stdio::null());
        let outside = command.spawn().expect("cannot make a namespace");
        let pid = Pid::from_child(&outside);
        // The first process, and its child.
        let first = wait::until("a process in the namespace", || {
            let first = process::children(pid).into_iter().next()?;
            process::children(first.pid).first()?;
            Handle::open(first.pid, |now| now.start == first.start)
        });
        wait_for_next_tick();
        Sandbox { outside, first }
    }

    /// All processes of it, and the one outside.
    fn pids(&self) -> Vec<Pid> {
        let inside = process::children(self.first.pid()).into_iter().map(|process| process.pid);
        inside.chain([self.first.pid(), Pid::from_child(&self.outside)]).collect()
    }

    fn close(mut self) {
        self.first.signal(Signal::KILL).expect("cannot end the namespace");
        self.outside.wait().expect("cannot wait for zoo");
    }
}

/// Start times have a resolution of 10 ms: a process that is started after this is younger than one from before.
fn wait_for_next_tick() {
    let tick = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec * 100 + now.tv_nsec / 10_000_000
    };
    let before = tick();
    wait::until("the next tick", || (tick() > before).then_some(()));
}

/// A tree with a member that left a process in the sandbox.
fn start_joiner(scene: &mut Scene, sandbox: &Sandbox, contain: &str, options: &[&str]) -> (Host, Handle) {
    let into = sandbox.first.pid().as_raw_nonzero().to_string();
    let mut words = vec!["--into", &into];
    words.extend(options);
    let tree = scene.tree("joiner", words);
    let words = scene.run_words(["--contain", contain, "--grace", "100ms"], &tree);
    let host = start_words(scene, &Manner::default(), &words);
    // The keeper has seen the member that joined.
    wait::until("the members in the ledger", || (scene.recorded_members() >= 2).then_some(()));
    let holders = scene.witness().holders();
    let stray = holders.iter().find(|process| process.name == "zoo-stray").expect("it is there");
    assert_eq!(stray.parent, sandbox.first.pid().as_raw_nonzero().get(), "it was adopted in the namespace");
    let stray = Handle::open(stray.pid, |now| now.start == stray.start).expect("it lives");
    (host, stray)
}

/// A host with a tree in `reaper` that has a process in the sandbox. The members between it and the leader die with the
/// leader.
fn start_foreign(scene: &mut Scene, sandbox: &Sandbox, grace: &str) -> Host {
    let first = sandbox.first.pid().as_raw_nonzero().to_string();
    let tree = scene.tree("foreign", ["--to", &first]);
    let words = scene.run_words(["--contain", "reaper", "--grace", grace], &tree);
    start_words(scene, &Manner::default(), &words)
}

/// Checks that leash ends a process that provably belongs to the tree, wherever it is.
fn check_ended(who: Who, contain: &str, options: &[&str]) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let sandbox = Sandbox::open(&scene, who);
    let others = sandbox.pids();
    let (mut host, stray) = start_joiner(&mut scene, &sandbox, contain, options);
    let leash = host.server();
    host.close_stdin();
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    assert!(!stray.is_alive(), "leash left and the stray is alive\n{}", scene.stderr());
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "gone", "{history:#}");
    assert!(sandbox.first.is_alive(), "leash ended a namespace that it did not make");
    let allowed: Vec<Pid> = others.into_iter().chain([host.pid()]).collect();
    check_gone(&scene, &allowed);
    sandbox.close();
}

#[test]
fn a_stray_in_the_keepers_session_is_ended_in_reaper_as_root() {
    check_ended(Who::Root, "reaper", &[]);
}

#[test]
fn a_stray_in_the_keepers_session_is_ended_in_reaper_as_a_user() {
    check_ended(Who::User, "reaper", &[]);
}

#[test]
fn a_stray_with_its_own_session_is_ended_in_leaf() {
    check_ended(Who::Root, "leaf", &["--own-session"]);
}

#[test]
fn a_stray_with_its_own_session_is_ended_in_a_users_leaf() {
    check_ended(Who::User, "leaf", &["--own-session"]);
}

/// Found by chaos: the supervisor took the stray of another tree in the same namespace for one of its own, and wrote a second
/// receipt.
#[test]
fn stray_of_another_tree_in_the_same_namespace_changes_nothing() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    or_skip!(scene.delegate());
    let sandbox = Sandbox::open(&scene, Who::Root);
    let (mut first, _) = start_joiner(&mut scene, &sandbox, "leaf", &["--own-session"]);
    let before = scene.witness().holders().len();
    let (mut second, _) = start_joiner(&mut scene, &sandbox, "leaf", &["--own-session"]);
    wait::until("the second stray", || {
        let strays = scene.witness().holders().iter().filter(|process| process.name == "zoo-stray").count();
        (strays >= 2 && scene.witness().holders().len() > before).then_some(())
    });
    let leash = first.server();
    first.close_stdin();
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    let history = scene.answer(["history", "--json"]).json();
    let receipts = history["receipts"].as_array().expect("a list");
    assert_eq!((receipts.len(), &receipts[0]["holdings"][0]["fate"]), (1, &"gone".into()), "{history:#}");
    second.close_stdin();
    assert!(second.server().wait_gone(LIMIT), "leash does not come to an end");
    let allowed: Vec<Pid> = sandbox.pids().into_iter().chain([first.pid(), second.pid()]).collect();
    check_gone(&scene, &allowed);
    sandbox.close();
}

/// Checks that leash neither ends a process that may belong to the tree nor reports it as gone.
fn check_left(who: Who, contain: &str) {
    let mut scene = or_skip!(Scene::set(who));
    let sandbox = Sandbox::open(&scene, who);
    let (mut host, stray) = start_joiner(&mut scene, &sandbox, contain, &["--own-session"]);
    let leash = host.server();
    host.close_stdin();
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    assert!(stray.is_alive(), "leash ended a process that it cannot prove to be its own");
    let history = scene.answer(["history", "--json"]).json();
    let tree = &history["receipts"][0]["holdings"][0];
    assert_eq!(tree["fate"], "left", "{history:#}");
    let named: Vec<i64> =
        tree["left"].as_array().into_iter().flatten().filter_map(|left| left["pid"].as_i64()).collect();
    // The processes of the namespace that are older than the run do not belong to it.
    assert_eq!(named, [i64::from(stray.pid().as_raw_nonzero().get())], "{history:#}");
    let why = tree["left"][0]["why"].as_str().expect("there is a reason");
    assert!(why.contains("PID namespace"), "{why}");
    sandbox.close();
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn a_stray_that_may_be_ours_is_called_left_in_reaper_as_root() {
    check_left(Who::Root, "reaper");
}

#[test]
fn a_stray_that_may_be_ours_is_called_left_in_reaper_as_a_user() {
    check_left(Who::User, "reaper");
}

#[test]
fn a_stray_that_may_be_ours_is_called_left_in_group() {
    check_left(Who::User, "group");
}

/// The keeper kills a tree that it has not scanned yet: it scans the members first, and sees which ones have entered a
/// namespace.
#[test]
fn a_stray_of_a_tree_that_is_killed_at_once_is_not_called_gone() {
    // The first scan is 20 ms after the start. Some of the rounds end before it.
    for _ in 0..8 {
        let mut scene = or_skip!(Scene::set(Who::User));
        let sandbox = Sandbox::open(&scene, Who::User);
        let mut host = start_foreign(&mut scene, &sandbox, "0");
        host.server().signal(Signal::KILL).expect("cannot kill leash");
        let history = wait::until("a receipt", || {
            let history = scene.answer(["history", "--json"]).json();
            history["receipts"][0].is_object().then_some(history)
        });
        let fate = &history["receipts"][0]["holdings"][0]["fate"];
        assert_eq!(fate == "gone", !scene.witness().is_populated(), "{history:#}");
        sandbox.close();
        check_gone(&scene, &[host.pid()]);
    }
}

/// The supervisor knows what its keeper has seen.
#[test]
fn a_stray_is_called_left_after_the_keeper_was_killed() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let sandbox = Sandbox::open(&scene, Who::User);
    let (mut host, stray) = start_joiner(&mut scene, &sandbox, "reaper", &["--own-session"]);
    let leash = host.server();
    let keeper = testkit::leash::keeper(leash.pid());
    keeper.signal(Signal::KILL).expect("cannot kill the keeper");
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    assert!(stray.is_alive(), "leash ended a process that it cannot prove to be its own");
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "left", "{history:#}");
    sandbox.close();
    check_gone(&scene, &[host.pid()]);
}

/// The same when all members that had entered the namespace are gone before the supervisor looks.
#[test]
fn a_stray_is_called_left_after_the_keeper_was_stopped_and_the_leader_killed() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let sandbox = Sandbox::open(&scene, Who::User);
    let mut host = start_foreign(&mut scene, &sandbox, "100ms");
    wait::until("the members in the ledger", || (scene.recorded_members() >= 4).then_some(()));
    let leash = host.server();
    let keeper = testkit::leash::keeper(leash.pid());
    let leader = process::children(keeper.pid()).pop().expect("the keeper has the leader");
    keeper.signal(Signal::STOP).expect("cannot stop the keeper");
    let leader = Handle::open(leader.pid, |now| now.start == leader.start).expect("it lives");
    leader.signal(Signal::KILL).expect("cannot kill the leader");
    leash.signal(Signal::TERM).expect("cannot end leash");
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "left", "{history:#}");
    assert!(scene.witness().is_populated(), "the stray is gone, and nothing was tested");
    sandbox.close();
    check_gone(&scene, &[host.pid()]);
}

/// Changes the record of a tree with a stray, kills the keeper, and checks that the receipt does not say `gone`. All other members
/// die with the keeper.
fn check_forged(forge: impl FnOnce(&mut Value)) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let sandbox = Sandbox::open(&scene, Who::User);
    let mut host = start_foreign(&mut scene, &sandbox, "100ms");
    wait::until("the members in the ledger", || (scene.recorded_members() >= 4).then_some(()));
    let leash = host.server();
    let path = record_file(&scene).expect("a record");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    forge(&mut record);
    fs::write(&path, record.to_string()).expect("cannot replace the record");
    testkit::leash::keeper(leash.pid()).signal(Signal::KILL).expect("cannot kill the keeper");
    assert!(leash.wait_gone(LIMIT), "leash does not come to an end");
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "left", "{history:#}");
    sandbox.close();
    check_gone(&scene, &[host.pid()]);
}

/// The supervisor checks a forged end in the record, and the check includes the namespace.
#[test]
fn a_stray_is_called_left_although_the_record_says_that_all_is_over() {
    check_forged(|record| record["over"] = forged_end(record, "reaper"));
}

/// The keeper has told the supervisor which namespace was entered, so the server cannot erase it.
#[test]
fn a_stray_is_called_left_although_its_namespace_was_erased_from_the_record() {
    check_forged(|record| {
        record["over"] = forged_end(record, "reaper");
        record.as_object_mut().expect("an object").remove("entered").expect("a namespace was entered");
    });
}
