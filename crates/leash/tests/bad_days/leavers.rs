//! Processes that leave their containment, and processes that are removed from it.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use testkit::cgroup::Outer;
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{check_gone, start, start_words};

/// A member that moved to another cgroup is still a descendant.
#[test]
fn cgroup_leaver_is_found_by_descent() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let elsewhere = or_skip!(Outer::create());
    let tree = scene.tree("leaver", [OsString::from("--to"), elsewhere.dir().into()]);
    let words = scene.run_words(["--contain", "leaf", "--grace", "100ms"], &tree);
    let host = start_words(&mut scene, &Manner::default(), &words);
    assert!(elsewhere.is_populated(), "no process moved there");
    host.signal(Signal::KILL);
    check_gone(&scene, &[host.pid()]);
    assert!(!elsewhere.is_populated(), "the leaver survived");
}

/// Kills each process between keeper and server in turn: `sealed` has two, and the death of either must end the tree.
#[test]
fn nothing_survives_the_processes_in_between() {
    let mut killed = 0;
    while let Some(depth) = kill_in_between(killed) {
        killed = depth + 1;
    }
    assert!(killed > 0, "there is no process in between");
}

/// Kills the process `depth` below the keeper, unless that is the server.
fn kill_in_between(depth: usize) -> Option<usize> {
    let mut scene = Scene::set(Who::User).expect("there is always a user");
    let mut host = start(&mut scene, &Manner::default(), &["--contain", "sealed", "--grace", "100ms"], "mixed");
    let mut above = keeper(host.server().pid());
    for _ in 0..=depth {
        let parent = above.pid().as_raw_nonzero().get();
        let below = process::children(above.pid()).into_iter().next().expect("there is a child");
        above = Handle::open(below.pid, |now| now.parent == parent).expect("it has not ended");
        if below.name == "zoo-leader" {
            return None;
        }
    }
    above.signal(Signal::KILL).expect("cannot kill");
    check_gone(&scene, &[host.pid()]);
    Some(depth)
}

/// An ordinary user cannot signal a process that became root. leash reports it as left, with the reason, and does not
/// wait for ever. A leaf is different: its owner may kill every process in it.
#[test]
fn process_that_became_root_is_reported_as_left() {
    let mut scene = or_skip!(Scene::set(Who::User));
    if scene.user().uid() == rustix::process::getuid().as_raw() {
        testkit::note("skipped: only root can make programs that run as root");
        return;
    }
    let setuid = scene.dir().join("zoo-as-root");
    fs::copy(scene.zoo_path(), &setuid).expect("cannot copy zoo");
    fs::set_permissions(&setuid, Permissions::from_mode(0o4755)).expect("cannot set its mode");
    let mut server = vec![setuid.into_os_string(), "as-root".into()];
    server.extend(scene.tree("chain", ["--size", "3"]));
    let words = scene.run_words(["--contain", "reaper", "--grace", "100ms"], &server);
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    let leash = host.server();
    host.close_stdin();
    assert!(leash.wait_gone(LIMIT), "leash waits for what it can't end");
    assert!(scene.census().is_populated(), "the process is gone, and nothing was tested");
    let said = scene.stderr();
    assert!(said.contains("not everything is gone"), "{said}");
    let history = scene.answer(["history", "--json"]).json();
    let tree = &history["receipts"][0]["holdings"][0];
    assert_eq!(tree["fate"], "left", "{history}");
    let left = tree["left"].as_array().expect("who is left is named");
    assert_eq!(left.len(), 3, "{history}");
    for left in left {
        assert_eq!(left["why"], "it belongs to another user (EPERM)", "{history}");
        assert!(left["pid"].as_i64().is_some_and(|pid| pid > 1), "{history}");
    }
    scene.witness().kill();
    check_gone(&scene, &[host.pid()]);
}
