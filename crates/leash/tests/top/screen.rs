//! The terminal is given back, however `leash top` ends.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};
use testkit::or_skip;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{handle, in_utf8, wait_exit};

/// The sequences that begin and end the use of the alternate screen, and the one that shows the cursor.
const BEGIN: &str = "\u{1b}[?1049h";
const END: &str = "\u{1b}[?1049l";
const CURSOR: &str = "\u{1b}[?25h";

fn start(scene: &Scene, pty: &Pty, words: &[&str]) -> Child {
    pty.resize(80).expect("it can be resized");
    let mut command = scene.leash(words);
    let side = || pty.terminal().expect("its other side");
    in_utf8(&mut command).stdin(side()).stdout(side()).stderr(Stdio::null());
    command.spawn().expect("leash starts")
}

/// Starts it, waits for its first screen, does something, and checks that it ends with this code and a usable terminal.
fn check(end: impl FnOnce(&Pty, &Child)) {
    let scene = or_skip!(Scene::set(Who::User));
    let pty = Pty::open().expect("a terminal");
    let before = tcgetattr(pty.terminal().expect("its other side")).expect("its modes").local_modes;
    let mut top = start(&scene, &pty, &["top"]);
    pty.wait_shown("adopt`", 1).expect("the first screen");
    let modes = || tcgetattr(pty.terminal().expect("its other side")).expect("its modes").local_modes;
    assert!(!modes().contains(LocalModes::ICANON), "keys come at once");
    end(&pty, &top);
    assert_eq!(wait_exit(&mut top), Some(0));
    assert_eq!(modes(), before);
    let screen = pty.screen();
    assert!(screen.contains(END) && screen.contains(CURSOR), "{screen:?}");
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn q_and_ctrl_c_give_the_terminal_back() {
    check(|pty, _| pty.enter("q").expect("it is typed"));
    check(|pty, _| pty.enter("\u{3}").expect("it is typed"));
}

#[test]
fn signal_gives_the_terminal_back() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        check(|_, top| handle(top).signal(signal).expect("it can be signalled"));
    }
}

#[test]
fn closed_terminal_ends_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let pty = Pty::open().expect("a terminal");
    let mut top = start(&scene, &pty, &["top"]);
    pty.wait_shown(BEGIN, 1).expect("the first screen");
    pty.close();
    wait_exit(&mut top);
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = scene.answer(["top"]);
    assert_eq!((answer.code, &*answer.stdout), (2, ""));
    let expected = "error: `leash top` needs a terminal for its stdin and stdout\n\n\
                    hint: `leash ps --watch` prints the same into a file or a pipe\n";
    assert_eq!(answer.stderr, expected);
}

#[test]
fn without_colour_only_attributes_are_written() {
    let scene = or_skip!(Scene::set(Who::User));
    let colours = |words: &[&str]| {
        let pty = Pty::open().expect("a terminal");
        let mut run = super::Run::start(&scene, "files", &scene.tree("polite", [""; 0]));
        let mut top = start(&scene, &pty, words);
        let screen = pty.read_until("running", 1).expect("a server");
        handle(&top).signal(Signal::TERM).expect("it can be signalled");
        wait_exit(&mut top);
        drop(run.0.stdin.take());
        run.wait();
        screen.contains("\u{1b}[38;5;2")
    };
    assert!(colours(&["top"]), "the screen has colours");
    assert!(!colours(&["top", "--color", "never"]));
    scene.wait_gone(&[]).expect("nothing is left");
}
