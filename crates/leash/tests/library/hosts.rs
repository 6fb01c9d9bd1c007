//! Hosts that exit without ending their session. The host is this test program, started again as a separate process.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use leash_core::{Session, Spec};
use testkit::scene::Scene;
use testkit::{or_skip, wait};

use super::{me, places};

/// Set for the process that plays the host: the data of the scene.
const PLAYS: &str = "LEASH_TEST_PLAYS_HOST";

/// The data that the host needs, as JSON in the variable.
fn script(scene: &Scene) -> String {
    let trees: Vec<Vec<String>> = ["daemon", "mixed"]
        .map(|kind| scene.tree(kind, ["--size", "4"]).iter().map(|word| word.to_string_lossy().into_owned()).collect())
        .to_vec();
    serde_json::json!({"trees": trees, "places": places(scene)}).to_string()
}

/// Plays the host if this process was started for that: starts a session, and waits for the end of its stdin.
fn play() {
    let Ok(script) = std::env::var(PLAYS) else { return };
    let script: serde_json::Value = serde_json::from_str(&script).unwrap();
    let mut session = Session::new(serde_json::from_value(script["places"].clone()).unwrap()).grace(Duration::ZERO);
    for tree in script["trees"].as_array().unwrap() {
        let words = tree.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        session.start(Spec::new(words)).unwrap();
    }
    let _ = std::io::stdin().read(&mut [0]);
    if std::env::var_os("LEASH_TEST_ABORTS").is_some() {
        std::process::abort();
    }
    // As in a crash: no destructor runs.
    std::mem::forget(session);
}

fn host(scene: &Scene, test: &str, aborts: bool) -> Child {
    let mut command = scene.command(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(PLAYS, script(scene));
    if aborts {
        command.env("LEASH_TEST_ABORTS", "1");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts the host and ends it through `ends`; nothing may be left.
fn check(test: &str, aborts: bool, ends: impl FnOnce(&mut Child)) {
    if std::env::var_os(PLAYS).is_some() {
        return play();
    }
    let mut scene = or_skip!(Scene::set(me()));
    let mut host = host(&scene, test, aborts);
    scene.census().wait_all_ready(2, wait::LIMIT).unwrap();
    ends(&mut host);
    host.wait().unwrap();
    scene.wait_gone(&[]).unwrap();
    wait::until("an empty ledger", || scene.ledger().is_empty().then_some(()));
}

#[test]
fn killed_host_leaves_nothing() {
    check("hosts::killed_host_leaves_nothing", false, |host| host.kill().unwrap());
}

#[test]
fn aborting_host_leaves_nothing() {
    check("hosts::aborting_host_leaves_nothing", true, |host| drop(host.stdin.take()));
}

#[test]
fn host_that_exits_without_ending_leaves_nothing() {
    check("hosts::host_that_exits_without_ending_leaves_nothing", false, |host| drop(host.stdin.take()));
}

#[test]
fn host_killed_while_it_starts_a_server_leaves_nothing() {
    const TEST: &str = "hosts::host_killed_while_it_starts_a_server_leaves_nothing";
    if std::env::var_os(PLAYS).is_some() {
        return play();
    }
    for delay in (0..48).step_by(3) {
        let scene = or_skip!(Scene::set(me()));
        let mut host = host(&scene, TEST, false);
        // The progress of the host is random. The result is not: nothing may be left.
        wait::step(Duration::from_millis(delay));
        host.kill().unwrap();
        host.wait().unwrap();
        scene.wait_gone(&[]).unwrap();
    }
}

/// The descriptors, threads and children of this process.
fn belongings() -> [usize; 3] {
    let count = |dir: &str| std::fs::read_dir(dir).map_or(0, Iterator::count);
    let children = testkit::process::children(rustix::process::getpid());
    [count("/proc/self/fd"), count("/proc/self/task"), children.len()]
}

/// In a separate process, because it counts for the whole process.
#[test]
fn worker_keeps_no_resources_of_its_jobs() {
    const TEST: &str = "hosts::worker_keeps_no_resources_of_its_jobs";
    let Ok(script) = std::env::var(PLAYS) else {
        let scene = or_skip!(Scene::set(me()));
        let mut worker = host(&scene, TEST, false);
        assert!(worker.wait().unwrap().success(), "the worker has kept something");
        return scene.wait_gone(&[]).unwrap();
    };
    let script: serde_json::Value = serde_json::from_str(&script).unwrap();
    let job = || {
        let mut session = Session::new(serde_json::from_value(script["places"].clone()).unwrap());
        for _ in 0..2 {
            session.start(Spec::new(["cat"])).unwrap();
        }
        session
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The first job creates the objects that stay for the life of the process.
    runtime.block_on(job().end());
    let before = belongings();
    for number in 0..30 {
        match number % 3 {
            0 => drop(job().end().wait()),
            1 => drop(runtime.block_on(job().end())),
            _ => drop(job()),
        }
    }
    wait::until("as much as before", || (belongings() == before).then_some(()));
}
