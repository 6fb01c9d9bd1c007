//! A list of spared programs must not hide other processes, and the receipt names the spared ones.

use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use testkit::host::Manner;
use testkit::or_skip;
use testkit::process::{Handle, Process};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{check_gone, start};

/// Checks that a keeper that cannot list the processes of its tree does not take the tree for empty.
fn check_starved_keeper(contain: &str) {
    let mut scene = or_skip!(Scene::set(Who::User));
    or_skip!(scene.delegate());
    let options = ["--contain", contain, "--spare", "another-program", "--grace", "100ms"];
    let words = scene.run_words(options, &scene.tree("chain", ["--size", "3"]));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut leash = command.spawn().expect("cannot start leash");
    scene.census().wait_ready(LIMIT).expect("the tree is up");
    let keeper = testkit::leash::keeper(Pid::from_child(&leash));
    let limit = Rlimit { current: Some(first_free(keeper.pid())), maximum: getrlimit(Resource::Nofile).maximum };
    scene.user().act(|| prlimit(Some(keeper.pid()), Resource::Nofile, limit)).expect("cannot limit the keeper");
    for _ in 0..3 {
        let before = switches(keeper.pid());
        // The keeper ignores this signal, but it wakes up and scans its tree.
        keeper.signal(Signal::USR2).expect("cannot signal the keeper");
        wait::until("the keeper sleeps again", || {
            let asleep = || Process::read(keeper.pid()).is_none_or(|process| process.state != 'R');
            (!keeper.is_alive() || (switches(keeper.pid()) > before && asleep())).then_some(())
        });
    }
    assert!(keeper.is_alive(), "the keeper left a tree that lives");
    drop(leash.stdin.take());
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
    let history = scene.answer(["history", "--json"]).json();
    let receipt = &history["receipts"][0];
    let told = (&receipt["reason"]["kind"], &receipt["holdings"][0]["fate"]);
    assert_eq!(told, (&"stdin_closed".into(), &"gone".into()), "{history:#}");
}

/// The lowest free descriptor number of a process: with that as its limit it cannot open another one, and can still
/// poll.
fn first_free(pid: Pid) -> u64 {
    let is_open =
        |number: &u64| std::fs::symlink_metadata(format!("/proc/{}/fd/{number}", pid.as_raw_nonzero())).is_ok();
    (0..).find(|number| !is_open(number)).expect("there is a limit")
}

/// The number of times that a process went to sleep by itself.
fn switches(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
}

#[test]
fn a_keeper_without_descriptors_and_a_spare_list_keeps_its_tree_in_leaf() {
    check_starved_keeper("leaf");
}

#[test]
fn a_keeper_without_descriptors_and_a_spare_list_keeps_its_tree_in_reaper() {
    check_starved_keeper("reaper");
}

#[test]
fn a_keeper_without_descriptors_and_a_spare_list_keeps_its_tree_in_group() {
    check_starved_keeper("group");
}

/// Checks that the children of a spared process stay with it, and that the receipt names both.
fn check_family(who: Who, contain: &str) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let options = ["--contain", contain, "--spare", "zoo-foster", "--grace", "100ms"];
    let mut host = start(&mut scene, &Manner::default(), &options, "fosters");
    let family: Vec<Process> =
        scene.witness().holders().into_iter().filter(|process| process.name != "zoo-leader").collect();
    assert_eq!(family.len(), 2, "{family:?}");
    let handles: Vec<Handle> =
        family.iter().filter_map(|found| Handle::open(found.pid, |now| now.start == found.start)).collect();
    let leash = host.server();
    host.close_stdin();
    assert!(leash.wait_gone(LIMIT), "leash waits for the spared");
    let history = scene.answer(["history", "--json"]).json();
    let tree = &history["receipts"][0]["holdings"][0];
    assert_eq!(tree["fate"], "gone", "{history:#}");
    let mut named: Vec<i64> =
        tree["spared"].as_array().into_iter().flatten().filter_map(|spared| spared["pid"].as_i64()).collect();
    named.sort_unstable();
    let mut expected: Vec<i64> = family.iter().map(|process| process.pid.as_raw_nonzero().get().into()).collect();
    expected.sort_unstable();
    assert_eq!(named, expected, "{history:#}");
    assert!(handles.iter().all(Handle::is_alive), "a spared process was ended");
    scene.witness().kill();
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn children_of_a_spared_process_are_named_in_leaf() {
    check_family(Who::Root, "leaf");
}

#[test]
fn children_of_a_spared_process_are_named_in_reaper() {
    check_family(Who::User, "reaper");
}
