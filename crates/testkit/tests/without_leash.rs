//! The trees of the zoo without leash: they survive. The matrix tests are only meaningful because these trees survive
//! here.

use rustix::process::Signal;
use testkit::host::Manner;
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

/// Starts a tree of `size` processes without leash and kills the host. At least `survivors` processes must be left,
/// although the leader's stdin ended with the host.
fn check(who: Who, tree: &str, size: usize, survivors: usize) {
    let mut scene = or_skip!(Scene::set(who));
    if ["hoppers", "bomb"].contains(&tree) {
        or_skip!(scene.bound(320));
    }
    let words = scene.tree::<&str>(tree, []);
    let manner = Manner { reads: tree != "full-stdout", ..Manner::default() };
    let mut host = scene.host(&manner, None, &words);
    let ready = scene.census().wait_ready(LIMIT);
    assert_eq!(ready, Ok(size), "{}", scene.stderr());
    let leader = scene.census().leader().expect("the tree has a leader");

    host.signal(Signal::KILL);
    host.wait();
    if survivors < size {
        assert!(leader.wait_gone(LIMIT), "the leader should have left");
    }
    if survivors == 0 {
        return scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
    }
    assert!(scene.census().is_populated());
    if let Some(outer) = scene.outer() {
        let left = outer.processes().len();
        assert!(left >= survivors, "{left} of {size} survived");
    }
}

/// Without leash no process reaps the zombies of hoppers, so they run in a PID namespace, whose init does it.
#[test]
fn hoppers_survive() {
    or_skip!(testkit::user::User::find(Who::Root));
    if inside("hoppers_survive", &[]) {
        check(Who::Root, "hoppers", 65, 1);
    }
}

macro_rules! trees {
    ($($name:ident: $tree:literal, $expected:literal, $survivors:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn as_root() {
                check(Who::Root, $tree, $expected, $survivors);
            }

            #[test]
            fn as_user() {
                check(Who::User, $tree, $expected, $survivors);
            }
        })*
    };
}

trees! {
    polite_leaves: "polite", 1, 0;
    ignores_eof_survives: "ignores-eof", 1, 1;
    stubborn_survives: "stubborn", 1, 1;
    setsid_helper_survives: "setsid", 2, 1;
    daemon_survives: "daemon", 2, 1;
    chain_survives: "chain", 20, 20;
    mixed_survives: "mixed", 20, 20;
    full_stdout_breaks: "full-stdout", 1, 0;
    bomb_survives: "bomb", 2, 250;
}
