//! Signals that leash inherits as blocked or ignored, or that are sent to processes by name.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{check_gone, start};

/// Starts leash as a child of the test with `steps`, with a complete tree.
fn start_with(scene: &mut Scene, steps: Vec<Step>, tree: &str) -> Child {
    let words = scene.run_words(["--grace", "100ms"], &scene.tree::<&str>(tree, []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    sys::prepare(&mut command, steps);
    let leash = command.spawn().expect("cannot start leash");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    leash
}

fn signal(leash: &Child, signal: Signal) {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let leash = Handle::open(Pid::from_child(leash), |process| process.parent == parent).expect("leash is gone");
    leash.signal(signal).expect("cannot signal leash");
}

#[test]
fn blocked_signals_still_end() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let blocked = [Signal::TERM, Signal::INT, Signal::HUP, Signal::CHILD].map(Step::Block).into();
    let mut leash = start_with(&mut scene, blocked, "stubborn");
    signal(&leash, Signal::TERM);
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
}

/// If a host ignores SIGCHLD, its children inherit that.
#[test]
fn ignored_sigchld_does_not_hide_the_exit_code() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.leash(["run", "--"]);
    command.arg(scene.zoo_path()).args(["exit", "3"]);
    sys::prepare(&mut command, vec![Step::Ignore(Signal::CHILD)]);
    assert_eq!(command.status().expect("cannot start leash").code(), Some(3));
    check_gone(&scene, &[]);
}

/// `nohup leash run`: SIGHUP must then not end it.
#[test]
fn nohup_is_honoured() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut leash = start_with(&mut scene, vec![Step::Ignore(Signal::HUP)], "polite");
    signal(&leash, Signal::HUP);
    leash.stdin.as_mut().expect("stdin is a pipe").write_all(b"hello\n").expect("the server is gone");
    let mut answer = [0; 6];
    leash.stdout.as_mut().expect("stdout is a pipe").read_exact(&mut answer).expect("the server does not answer");
    signal(&leash, Signal::TERM);
    check_gone(&scene, &[]);
    let code = leash.wait().expect("cannot wait for leash");
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["reason"]["signal"], 15, "{code}, {history}");
}

/// `pkill -9 leash`, or `pkill -9 -f` with the name of the server, kills one of the two and not the other.
#[test]
fn keeper_has_neither_the_name_of_leash_nor_of_the_server() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = start(&mut scene, &Manner::default(), &["--grace", "100ms"], "stubborn");
    let keeper = keeper(host.server().pid()).pid().as_raw_nonzero();
    for file in ["comm", "cmdline"] {
        let name = fs::read(format!("/proc/{keeper}/{file}")).expect("the keeper is gone");
        let name = String::from_utf8_lossy(&name).into_owned();
        assert!(!name.contains("leash") && !name.contains("zoo"), "{file}: {name}");
    }
}
