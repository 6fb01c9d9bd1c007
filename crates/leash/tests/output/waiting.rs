//! A wait of more than a second is shown on a terminal, and nowhere else.

use std::process::{Child, Stdio};

use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;
use testkit::{or_skip, wait};

/// A server that ends only by SIGKILL, after two graces of a second.
fn stubborn(scene: &mut Scene) -> Child {
    let options = ["--session", "red", "--grace", "1s"];
    let words = scene.run_words(options, &scene.tree::<&str>("stubborn", []));
    let mut command = scene.command(&words[0]);
    let leash = command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("leash starts");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    leash
}

fn check_end(term: Option<&str>, is_shown: bool) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut leash = stubborn(&mut scene);
    let pty = Pty::open().expect("a terminal");
    let mut command = scene.leash(["end", "red"]);
    command.envs(term.map(|term| ("TERM", term))).env("NO_COLOR", "1").stdout(Stdio::null());
    let mut end = command.stderr(pty.terminal().expect("its other side")).spawn().expect("leash starts");
    drop(command);
    let screen = pty.screen();
    assert!(end.wait().expect("it ends").success());
    leash.wait().expect("it ends");
    let text = "s] for session red to end, at most ";
    assert_eq!(screen.contains("     Waiting [") && screen.contains(text), is_shown, "{screen}");
    if is_shown {
        assert!(screen.ends_with("\r\u{1b}[K"), "the line is gone at the end: {screen:?}");
    }
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn terminal_says_what_is_awaited() {
    check_end(Some("xterm"), true);
}

#[test]
fn simple_terminal_gets_no_line_that_moves() {
    check_end(Some("dumb"), false);
    check_end(None, false);
}

#[test]
fn pipe_gets_nothing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut leash = stubborn(&mut scene);
    let mut command = scene.leash(["end", "red"]);
    let answer = command.env("TERM", "xterm").output().expect("leash starts");
    assert_eq!(String::from_utf8_lossy(&answer.stderr), "");
    leash.wait().expect("it ends");
    scene.wait_gone(&[]).expect("nothing is left");
}

/// `check` stops by a signal as without a terminal: the line's thread does not get it.
#[test]
fn check_on_a_terminal_is_stopped_by_a_signal() {
    let scene = or_skip!(Scene::set(Who::User));
    let pty = Pty::open().expect("a terminal");
    let mut command = scene.leash(["check", "--ready", "60s", "--", "sh", "-c", "while read line; do :; done"]);
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(pty.terminal().expect("its other side"));
    let mut check = command.spawn().expect("leash starts");
    drop(command);
    pty.wait_shown("Waiting", 1).expect("the line");
    let process = testkit::process::Handle::open(rustix::process::Pid::from_child(&check), |_| true).expect("it lives");
    process.signal(rustix::process::Signal::TERM).expect("it is ours");
    let status = wait::until("its end", || check.try_wait().expect("it is ours"));
    assert_eq!(status.code(), Some(128 + 15), "{}", pty.screen());
    scene.wait_gone(&[]).expect("nothing is left");
}
