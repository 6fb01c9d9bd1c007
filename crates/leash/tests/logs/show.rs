//! `leash logs`: what it shows, follows and escapes.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

/// Runs a script as the server `name`, in the session `session`.
fn say(scene: &Scene, name: &str, session: &str, script: &str) {
    let answer = scene.answer(["run", "--log", "--name", name, "--session", session, "--", "sh", "-c", script]);
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// The output without the times, which are of a fixed length.
fn shown<const N: usize>(scene: &Scene, words: [&str; N]) -> Vec<String> {
    let answer = scene.answer(["logs"].into_iter().chain(words));
    assert_eq!(answer.code, 0, "{answer:?}");
    let line = |line: &str| {
        assert!(line.len() > 25 && &line[10..11] == "T" && &line[23..25] == "Z ", "{line}");
        line[25..].to_owned()
    };
    answer.stdout.lines().map(line).collect()
}

#[test]
fn lines_have_a_time_a_name_and_a_session() {
    let scene = or_skip!(Scene::set(Who::User));
    say(&scene, "files", "red", "echo one >&2; echo two >&2");
    say(&scene, "web", "blue", "echo three >&2");
    let all = ["files [red]: one", "files [red]: two", "web [blue]: three"];
    assert_eq!(shown(&scene, []), all);
    assert_eq!(shown(&scene, ["--since", "1h"]), all);
    assert_eq!(shown(&scene, ["-n", "2"]), all[1..]);
    assert_eq!(shown(&scene, ["--limit", "1"]), all[2..]);
    assert_eq!(shown(&scene, ["red"]), all[..2]);
    assert_eq!(shown(&scene, ["web"]), all[2..]);
    let none = scene.answer(["logs", "--since", "0"]);
    assert_eq!((none.code, &*none.stdout, &*none.stderr), (0, "", "No server wrote a line in this time.\n"));
}

#[test]
fn nothing_is_kept_is_no_error() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = scene.answer(["logs"]);
    assert_eq!((answer.code, &*answer.stdout), (0, ""), "{answer:?}");
    assert!(answer.stderr.starts_with("No log is kept here."), "{answer:?}");
}

/// It goes on with lines of servers that start later, and ends with the reader of its output.
#[test]
fn follow_shows_new_lines_until_its_reader_is_gone() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.leash(["logs", "-f", "web"]);
    let mut follow = command.stdout(Stdio::piped()).spawn().expect("cannot start leash");
    let mut lines = BufReader::new(follow.stdout.take().expect("a pipe")).lines();
    say(&scene, "files", "red", "echo of another server >&2");
    say(&scene, "web", "red", "echo one >&2");
    say(&scene, "web", "blue", "echo two >&2");
    let mut next = || lines.next().expect("it goes on").expect("it can be read");
    assert!(next().ends_with(" web [red]: one"));
    assert!(next().ends_with(" web [blue]: two"));
    drop(lines);
    assert_eq!(wait::until("its end", || follow.try_wait().expect("it is ours")).code(), Some(0));
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn terminal_gets_no_control_characters_of_a_server() {
    let scene = or_skip!(Scene::set(Who::User));
    say(&scene, "x", "red", r"printf '\033[2Ja\tb\rc\n\377\n' >&2");
    let pty = Pty::open().expect("a terminal");
    let mut command = scene.leash(["logs", "x"]);
    let mut leash = command.stdout(pty.terminal().expect("its other side")).spawn().expect("cannot start leash");
    pty.wait_shown("x [red]: \\u{1b}[2Ja\tb\\rc", 1).expect("the line of the server");
    assert!(leash.wait().expect("it is ours").success());
    let answer = scene.answer(["logs", "x", "--json"]);
    let lines: Vec<serde_json::Value> =
        answer.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!((&lines[0]["text"], &lines[1]["hex"]), (&"\u{1b}[2Ja\tb\rc".into(), &"ff".into()), "{lines:?}");
}
