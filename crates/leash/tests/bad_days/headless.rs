//! Processes whose main thread has exited while another thread runs: /proc calls them zombies, but they are alive.

use rustix::process::Signal;
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{check_gone, start};

/// Checks that such a process is a member to the end: it gets SIGTERM, and the receipt says `gone` only after its exit.
fn check_termed(who: Who, contain: &str, spare: &[&str]) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let options: Vec<&str> = ["--contain", contain].iter().chain(spare).copied().collect();
    let mut host = start(&mut scene, &Manner::default(), &options, "headless-child");
    host.close_stdin();
    check_gone(&scene, &[host.pid()]);
    let history = scene.answer(["history", "--json"]).json();
    let tree = &history["receipts"][0]["holdings"][0];
    assert_eq!((&tree["fate"], &tree["how"]), (&"gone".into(), &"term".into()), "{history:#}");
}

/// Checks that it is killed if there is no time for SIGTERM.
fn check_killed(who: Who, contain: &str, spare: &[&str]) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let options: Vec<&str> = ["--contain", contain, "--grace", "0s"].iter().chain(spare).copied().collect();
    let host = start(&mut scene, &Manner::default(), &options, "headless-child");
    host.signal(Signal::KILL);
    check_gone(&scene, &[host.pid()]);
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "gone", "{history:#}");
}

fn check(who: Who, contain: &str) {
    for spare in [&[][..], &["--spare", "another-program"]] {
        check_termed(who, contain, spare);
        check_killed(who, contain, spare);
    }
}

#[test]
fn a_process_without_a_main_thread_is_ended_in_leaf() {
    check(Who::Root, "leaf");
}

#[test]
fn a_process_without_a_main_thread_is_ended_in_a_users_leaf() {
    check(Who::User, "leaf");
}

#[test]
fn a_process_without_a_main_thread_is_ended_in_reaper() {
    check(Who::User, "reaper");
}

#[test]
fn a_process_without_a_main_thread_is_ended_in_group() {
    check(Who::User, "group");
}

#[test]
fn a_process_without_a_main_thread_is_ended_in_sealed() {
    check_termed(Who::User, "sealed", &[]);
}

/// leash and keeper are killed together. `cgroup.kill` alone does not end such a process, so the next start must do
/// more.
fn check_swept(who: Who, contain: &str) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let mut host = start(&mut scene, &Manner::default(), &["--contain", contain, "--grace", "0s"], "headless-child");
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    let supervisor = host.server();
    let keeper = keeper(supervisor.pid());
    for signal in [Signal::STOP, Signal::KILL] {
        supervisor.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    assert!(supervisor.wait_gone(wait::LIMIT) && keeper.wait_gone(wait::LIMIT), "a killed process lives");
    let answer = scene.answer(["run", "--", "true"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn a_sweep_ends_a_process_without_a_main_thread_in_leaf() {
    check_swept(Who::Root, "leaf");
}

#[test]
fn a_sweep_ends_a_process_without_a_main_thread_in_reaper() {
    check_swept(Who::User, "reaper");
}

/// The leaf has a member without a main thread that is not a descendant of leash: descent does not find it, and
/// `cgroup.kill` does not end it.
#[test]
fn a_leaf_member_without_a_main_thread_is_killed_through_its_pidfd() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let leaf = {
        let tree = scene.tree::<&str>("stubborn", []);
        let words = scene.run_words(["--contain", "leaf", "--grace", "0s"], &tree);
        super::start_words(&mut scene, &Manner::default(), &words)
    };
    let record = super::record_file(&scene).expect("the run is in the ledger");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(record).expect("readable")).expect("JSON");
    let dir = std::path::PathBuf::from(record["leaf"].as_str().expect("it names its leaf"));
    // A tree beside leash, moved into the leaf from outside: not a descendant of the keeper.
    let tree = scene.tree::<&str>("headless-child", []);
    scene.census().forget();
    let mut command = scene.command(&tree[0]);
    let mut beside = command.args(&tree[1..]).stdin(std::process::Stdio::piped()).spawn().expect("cannot start zoo");
    scene.census().wait_ready(wait::LIMIT).expect("the second tree is up");
    let holders = scene.witness().holders();
    let headless = holders.iter().find(|process| process.name == "zoo-headless").expect("it is there");
    std::fs::write(dir.join("cgroup.procs"), headless.pid.as_raw_nonzero().to_string()).expect("cannot move it");
    leaf.signal(Signal::KILL);
    let ended = testkit::process::Handle::open(headless.pid, |now| now.start == headless.start);
    assert!(ended.is_none_or(|handle| handle.wait_gone(wait::LIMIT)), "it survived\n{}", scene.stderr());
    drop(beside.stdin.take());
    beside.wait().expect("cannot wait for zoo");
    check_gone(&scene, &[leaf.pid()]);
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "gone", "{history:#}");
}
