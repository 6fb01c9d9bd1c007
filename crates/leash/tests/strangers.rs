//! Processes and records that do not belong to leash: it leaves them alone, and reports nothing about them.

use std::ffi::OsString;
use std::process::Stdio;

use rustix::process::Signal;
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

/// `helper & exec leash run -- server`: the helper is a child of leash, but leash must not touch it.
fn check_inherited_child(contain: &str, who: Who) {
    let mut scene = or_skip!(Scene::set(who));
    let run = scene.run_words(["--contain", contain, "--grace", "100ms"], &scene.tree::<&str>("setsid", []));
    let mut command = scene.command("sh");
    command.args(["-c", "sleep 1000 </dev/null >/dev/null 2>&1 & exec \"$@\"", "sh"]).args(run);
    let mut leash = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cannot start the shell");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    let supervisor = rustix::process::Pid::from_child(&leash);
    let parent = supervisor.as_raw_nonzero().get();
    let children = process::children(supervisor);
    let named = |name: &str| {
        let child = children.iter().find(|child| child.name == name).expect("leash has two children");
        Handle::open(child.pid, |now| now.parent == parent).expect("it has not ended")
    };
    let (stranger, keeper) = (named("sleep"), named("keeper"));
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    keeper.signal(Signal::KILL).expect("cannot kill the keeper");
    leash.wait().expect("cannot wait for leash");
    scene.census().wait_gone(LIMIT).expect("the tree is ended all the same");
    assert!(stranger.is_alive(), "leash killed a process that it had not started");
}

#[test]
fn a_child_from_before_exec_is_spared_in_leaf() {
    check_inherited_child("leaf", Who::Root);
}

#[test]
fn a_child_from_before_exec_is_spared_in_reaper() {
    check_inherited_child("reaper", Who::User);
}

/// A container that shares the runtime directory with its host must not take the host's pids for its own.
fn check_other_namespace(options: &[&str]) {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words(["--contain", "reaper", "--grace", "100ms"], &scene.tree::<&str>("setsid", []));
    let mut host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    let supervisor = host.server();
    let keeper = keeper(supervisor.pid());
    for signal in [Signal::STOP, Signal::KILL] {
        supervisor.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    let recorded = scene.ledger();
    let mut inside = scene.zoo(["ns", "--pid"]);
    inside.args(options).arg("--").args(scene.run_words([] as [&str; 0], &words_that_exit(&scene)));
    inside.status().expect("cannot start leash in a namespace");
    assert_eq!(scene.ledger(), recorded, "a leash in another namespace took the record");

    // In the original namespace it is ended.
    let status = scene.leash(["run", "--"]).args(words_that_exit(&scene)).status().expect("cannot start leash");
    assert!(status.success(), "{status}");
    scene.wait_gone(&[host.pid()]).expect("the next start at home ends the rest");
}

fn words_that_exit(scene: &Scene) -> Vec<OsString> {
    vec![scene.zoo_path().into(), "exit".into(), "0".into()]
}

#[test]
fn a_record_of_another_pid_namespace_is_left_alone() {
    check_other_namespace(&["--proc"]);
}

#[test]
fn a_record_is_left_alone_without_our_own_proc() {
    check_other_namespace(&[]);
}

/// A process that forks and exits, for ever, is never seen twice. A spare list without its name must not hide it.
fn check_hoppers_beside_a_spare(contain: &str, who: Who) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.bound(200));
    let tree = scene.tree("hoppers", ["--size", "5"]);
    let words = scene.run_words(["--contain", contain, "--spare", "nobody", "--grace", "100ms"], &tree);
    let host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    host.signal(Signal::KILL);
    scene.wait_gone(&[host.pid()]).expect("a spare list is no way out");
}

#[test]
fn hoppers_are_not_spared_in_leaf() {
    check_hoppers_beside_a_spare("leaf", Who::Root);
}

#[test]
fn hoppers_are_not_spared_in_reaper() {
    check_hoppers_beside_a_spare("reaper", Who::User);
}

/// The server's own program on the spare list means the processes that it starts, not the server itself.
#[test]
fn the_leader_is_not_spared() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.leash(["run", "--spare", "cat", "--", "cat"]);
    let mut leash = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start leash");
    let mut stdin = leash.stdin.take().expect("it is a pipe");
    std::io::Write::write_all(&mut stdin, b"hello\n").expect("the server reads");
    drop(stdin);
    let output = leash.wait_with_output().expect("cannot wait for leash");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{output:?}");
}
