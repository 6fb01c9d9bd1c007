//! leash below leash below leash.

use std::ffi::OsString;

use rustix::process::Signal;
use testkit::host::{Host, Manner};
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{answer, check_gone, start_words};

fn nest(scene: &Scene, depth: usize, tree: &[OsString]) -> Vec<OsString> {
    (0..depth).fold(tree.to_vec(), |inner, _| scene.run_words(["--grace", "100ms"], &inner))
}

fn check(who: Who, end: impl FnOnce(&mut Host)) {
    let mut scene = or_skip!(Scene::set(who));
    let words = nest(&scene, 3, &scene.tree::<&str>("mixed", []));
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    assert_eq!(scene.answer(["ps", "--json"]).json()["sessions"].as_array().map(Vec::len), Some(3));
    end(&mut host);
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn host_dies_as_root() {
    check(Who::Root, |host| host.signal(Signal::KILL));
}

#[test]
fn host_dies_as_user() {
    check(Who::User, |host| host.signal(Signal::KILL));
}

#[test]
fn stdin_is_closed() {
    check(Who::User, Host::close_stdin);
}

#[test]
fn outermost_leash_is_killed() {
    check(Who::User, |host| host.server().signal(Signal::KILL).expect("cannot kill leash"));
}

#[test]
fn outermost_keeper_is_killed() {
    check(Who::User, |host| keeper(host.server().pid()).signal(Signal::KILL).expect("cannot kill the keeper"));
}

#[test]
fn exit_code_comes_through() {
    let scene = or_skip!(Scene::set(Who::User));
    let words = nest(&scene, 3, &[scene.zoo_path().into(), "exit".into(), "42".into()]);
    assert_eq!(answer(scene.command(&words[0]).args(&words[1..])).code, 42);
    check_gone(&scene, &[]);
}
