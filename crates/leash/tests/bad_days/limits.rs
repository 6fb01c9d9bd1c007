//! leash runs out of processes or descriptors.

use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use testkit::host::Manner;
use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{FAILED, check_gone, check_refusal, trivial};

/// Checks that leash works or says that it cannot, with nothing in between and nothing left.
fn check(contain: &str, resource: Resource, most: u64) {
    let mut scene = or_skip!(Scene::set(Who::User));
    or_skip!(scene.delegate());
    let words = scene.run_words(["--contain", contain, "--grace", "100ms"], &scene.tree::<&str>("stubborn", []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    sys::prepare(&mut command, vec![Step::Limit(resource, most)]);
    let mut leash = command.spawn().expect("cannot start leash");
    let came_up = wait::until("a tree, or a refusal", || {
        if scene.census().wait_ready(std::time::Duration::ZERO).is_ok() {
            return Some(true);
        }
        leash.try_wait().expect("cannot wait for leash").map(|_| false)
    });
    drop(leash.stdin.take());
    check_gone(&scene, &[]);
    let answer = Answer::from(leash.wait_with_output().expect("cannot wait for leash"));
    // Below that, not even the dynamic linker works.
    let not_started = answer.stderr.contains("error while loading shared libraries");
    let refused = answer.code == FAILED && answer.stderr.contains("error: ") && answer.stderr.contains("hint: ");
    assert!(came_up || refused || not_started, "{contain}, {resource:?} {most}: {answer:?}");
}

#[test]
fn processes() {
    for contain in ["reaper", "leaf", "sealed"] {
        for most in 1..8 {
            check(contain, Resource::Nproc, most);
        }
    }
}

/// leash may start no process at all.
#[test]
fn supervisor_names_a_used_up_limit() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = trivial(&scene, &[]);
    sys::prepare(&mut command, vec![Step::Limit(Resource::Nproc, 1)]);
    let answer = check_refusal(&scene, &mut command, FAILED);
    assert!(
        answer.stderr.contains("cannot start the keeper\n  Caused by: Resource temporarily unavailable"),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("hint: a limit of processes, open files or memory is used up"), "{answer:?}");
}

/// The host, leash and the keeper are all the processes that may exist.
#[test]
fn keeper_names_a_used_up_limit() {
    let mut scene = or_skip!(Scene::set(Who::User));
    or_skip!(scene.bound(3));
    let words = scene.run_words(["--contain", "reaper"], &scene.tree::<&str>("polite", []));
    let host = scene.host(&Manner::default(), None, &words);
    let expected = "cannot start a process\n  Caused by: Resource temporarily unavailable";
    wait::until("a refusal", || scene.stderr().contains("hint: ").then_some(()));
    assert!(scene.stderr().contains(expected), "{}", scene.stderr());
    assert!(scene.stderr().contains("a limit of processes, open files or memory is used up"), "{}", scene.stderr());
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn descriptors() {
    for contain in ["reaper", "leaf", "sealed"] {
        for most in 3..24 {
            check(contain, Resource::Nofile, most);
        }
    }
}

/// Found by chaos: a keeper that cannot open any file must still end its tree and report it.
#[test]
fn descriptors_of_a_running_keeper() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--contain", "reaper", "--grace", "100ms"], &scene.tree::<&str>("stubborn", []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut leash = command.spawn().expect("cannot start leash");
    scene.census().wait_ready(wait::LIMIT).expect("the tree is up");
    let keeper = testkit::leash::keeper(Pid::from_child(&leash)).pid();
    let limit = Rlimit { current: Some(3), maximum: getrlimit(Resource::Nofile).maximum };
    scene.user().act(|| prlimit(Some(keeper), Resource::Nofile, limit)).expect("cannot limit the keeper");
    drop(leash.stdin.take());
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
    let receipts = scene.answer(["history", "--json"]).json()["receipts"].clone();
    let told = (&receipts[0]["ended_by"], &receipts[0]["holdings"][0]["fate"]);
    assert_eq!(told, (&"keeper".into(), &"gone".into()), "{receipts:#}");
}

/// No file may grow, including the ledger's.
#[test]
fn file_size() {
    for most in [0, 1, 100, 1000] {
        check("reaper", Resource::Fsize, most);
    }
}
