//! Leash or keeper is stopped, and the other one must do the work.

use rustix::process::Signal;
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{check_gone, start};

fn check(contain: &str, who: Who, whom: fn(&Handle) -> Handle) {
    let mut scene = or_skip!(Scene::set(who));
    or_skip!(scene.delegate());
    let mut host = start(&mut scene, &Manner::default(), &["--contain", contain, "--grace", "100ms"], "mixed");
    let leash = host.server();
    let victim = whom(&leash);
    victim.signal(Signal::STOP).expect("cannot stop");
    host.signal(Signal::KILL);
    if let Err(left) = scene.census().wait_gone(LIMIT) {
        panic!("{contain}: {left}\n{}", scene.stderr());
    }
    // A stopped process of leash itself holds nothing; it exits after SIGCONT.
    victim.signal(Signal::CONT).expect("cannot continue");
    check_gone(&scene, &[host.pid()]);
}

fn supervisor(leash: &Handle) -> Handle {
    Handle::open(leash.pid(), |_| true).expect("leash is gone")
}

fn its_keeper(leash: &Handle) -> Handle {
    keeper(leash.pid())
}

macro_rules! stopped {
    ($($name:ident: $contain:literal $who:ident $whom:ident;)*) => {
        $(
            #[test]
            fn $name() {
                check($contain, Who::$who, $whom);
            }
        )*
    };
}

stopped! {
    leash_in_reaper_as_root: "reaper" Root supervisor;
    leash_in_reaper_as_user: "reaper" User supervisor;
    leash_in_leaf_as_root: "leaf" Root supervisor;
    leash_in_leaf_as_user: "leaf" User supervisor;
    leash_in_sealed_as_root: "sealed" Root supervisor;
    leash_in_sealed_as_user: "sealed" User supervisor;
    keeper_in_reaper_as_root: "reaper" Root its_keeper;
    keeper_in_reaper_as_user: "reaper" User its_keeper;
    keeper_in_leaf_as_root: "leaf" Root its_keeper;
    keeper_in_leaf_as_user: "leaf" User its_keeper;
    keeper_in_sealed_as_root: "sealed" Root its_keeper;
    keeper_in_sealed_as_user: "sealed" User its_keeper;
}

/// The keeper is stopped after it has begun to end the tree, for which the ladder allows more than a minute.
#[test]
fn keeper_that_is_stopped_while_it_ends_the_tree_is_replaced() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let options = ["--contain", "reaper", "--grace", "3s"];
    let mut host = start(&mut scene, &Manner::default(), &options, "ignores-eof");
    let leash = host.server();
    let keeper = keeper(leash.pid());
    host.close_stdin();
    let is_ending = || scene.answer(["ps", "--json"]).json()["sessions"][0]["phase"] == "ending";
    assert!(wait::within(LIMIT, || is_ending().then_some(())).is_some(), "the tree does not end\n{}", scene.stderr());
    keeper.signal(Signal::STOP).expect("cannot stop the keeper");
    check_gone(&scene, &[host.pid()]);
    assert!(leash.wait_gone(LIMIT), "leash waits for its keeper\n{}", scene.stderr());
}

/// A stopped server sees neither the end of its input nor SIGTERM.
fn tree_is_stopped(who: Who) {
    let mut scene = or_skip!(Scene::set(who));
    let host = start(&mut scene, &Manner::default(), &["--grace", "100ms"], "mixed");
    for member in scene.census().holders() {
        let member = Handle::open(member.pid, |now| now.start == member.start).expect("it has not ended");
        member.signal(Signal::STOP).expect("cannot stop");
    }
    host.signal(Signal::KILL);
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn tree_is_stopped_as_root() {
    tree_is_stopped(Who::Root);
}

#[test]
fn tree_is_stopped_as_user() {
    tree_is_stopped(Who::User);
}
