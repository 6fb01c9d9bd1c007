//! leash as PID 1, as in a container image whose entry point it is.

use std::ffi::OsString;

use rustix::process::Signal;
use testkit::host::{Ended, Host, Manner};
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{FAILED, answer, check_gone, check_refusal, start_words};

/// `words` in a PID namespace, as its first process.
fn contained(scene: &Scene, options: &[&str], words: &[OsString]) -> Vec<OsString> {
    let mut all = vec![scene.zoo_path().into_os_string(), "ns".into(), "--pid".into()];
    all.extend(options.iter().map(OsString::from));
    all.push("--".into());
    all.extend_from_slice(words);
    all
}

fn check(end: impl FnOnce(&mut Host, &Handle)) {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words(["--grace", "100ms"], &scene.tree::<&str>("mixed", []));
    let words = contained(&scene, &["--proc"], &words);
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    let engine = host.server().pid();
    let leash = wait::until("leash", || {
        let [leash] = &process::children(engine)[..] else {
            return None;
        };
        Handle::open(leash.pid, |now| now.parent == engine.as_raw_nonzero().get())
    });
    end(&mut host, &leash);
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn stdin_is_closed() {
    check(|host, _| host.close_stdin());
}

#[test]
fn host_is_killed() {
    check(|host, _| host.signal(Signal::KILL));
}

/// The signal of `docker stop`.
#[test]
fn gets_sigterm() {
    check(|_, leash| leash.signal(Signal::TERM).expect("cannot signal leash"));
}

#[test]
fn is_killed() {
    check(|_, leash| leash.signal(Signal::KILL).expect("cannot kill leash"));
}

#[test]
fn mirrors_exit_codes() {
    let scene = or_skip!(Scene::set(Who::Root));
    let server = [scene.zoo_path().into(), "exit".into(), "42".into()];
    let words = contained(&scene, &["--proc"], &scene.run_words::<&str>([], &server));
    let answer = answer(scene.command(&words[0]).args(&words[1..]));
    assert_eq!(answer.code, 42, "{answer:?}");
    check_gone(&scene, &[]);
}

/// leash never uses pids from a `/proc` of another namespace.
#[test]
fn foreign_proc_is_refused_by_the_reaper() {
    let scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words(["--contain", "reaper"], &scene.tree::<&str>("stubborn", []));
    let words = contained(&scene, &["--init"], &words);
    let answer = check_refusal(&scene, scene.command(&words[0]).args(&words[1..]), FAILED);
    assert!(answer.stderr.contains("/proc"), "{answer:?}");
}

#[test]
fn foreign_proc_is_not_used() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words(["--grace", "100ms", "-v"], &scene.tree::<&str>("mixed", []));
    let words = contained(&scene, &["--init"], &words);
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    host.close_stdin();
    assert_eq!(host.wait_ended(LIMIT).map(|ended| matches!(ended, Ended::Exited(_))), Some(true));
    check_gone(&scene, &[host.pid()]);
    assert!(scene.stderr().contains("/proc"), "leash does not say so: {}", scene.stderr());
}
