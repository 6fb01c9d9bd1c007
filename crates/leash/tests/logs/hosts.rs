//! Hosts of every kind: they read, read slowly, never read, close their stderr, or have a terminal; and a disk that is full.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use testkit::leash::Answer;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{note, or_skip, wait};

use super::{check_gone, lines, run_words};

/// 300,000 bytes of stderr in lines of 100.
const MUCH: &str = "seq 3000 | while read n; do printf '%099d\\n' $n; done >&2";

fn much() -> Vec<u8> {
    (1..=3000).flat_map(|number| format!("{number:0>99}\n").into_bytes()).collect()
}

fn command(scene: &Scene, options: &[&str], script: &str) -> Command {
    let words = run_words(scene, options, script);
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]);
    command
}

fn check_every_byte(who: Who) {
    let scene = or_skip!(Scene::set(who));
    let answer: Answer =
        command(&scene, &["--grace", "200ms"], &format!("{MUCH}; exit 3")).output().expect("cannot start leash").into();
    assert_eq!(answer.code, 3);
    assert!(answer.stderr.as_bytes() == much(), "{} bytes", answer.stderr.len());
    let logged = lines(&scene, "x");
    assert_eq!((logged.len(), logged.last().map(String::as_str)), (3000, Some(&*format!("{:0>99}", 3000))));
    check_gone(&scene);
}

/// The pipe of the host belongs to root here, so leash cannot open it once more.
#[test]
fn host_of_another_user_gets_every_byte() {
    check_every_byte(Who::User);
}

#[test]
fn host_gets_every_byte() {
    check_every_byte(Who::Root);
}

/// Node.js gives its servers sockets.
#[test]
fn socket_gets_every_byte() {
    let scene = or_skip!(Scene::set(Who::User));
    let (mut ours, theirs) = UnixStream::pair().expect("a socket");
    let mut leash =
        command(&scene, &["--grace", "200ms"], MUCH).stderr(std::os::fd::OwnedFd::from(theirs)).spawn().expect("leash");
    let mut said = Vec::new();
    ours.read_to_end(&mut said).expect("it can be read");
    assert!(said == much(), "{} bytes", said.len());
    assert_eq!(leash.wait().expect("it is ours").code(), Some(0));
    check_gone(&scene);
}

#[test]
fn file_gets_every_byte_behind_what_it_has() {
    let scene = or_skip!(Scene::set(Who::User));
    let path = scene.dir().join("said");
    let mut file = fs::File::create(&path).expect("a file");
    std::io::Write::write_all(&mut file, b"before\n").expect("it can be written");
    assert!(command(&scene, &["--grace", "200ms"], "echo one >&2").stderr(file).status().expect("leash").success());
    assert_eq!(fs::read_to_string(path).expect("it can be read"), "before\none\n");
    check_gone(&scene);
}

#[test]
fn terminal_shows_what_the_server_says() {
    let scene = or_skip!(Scene::set(Who::User));
    let pty = Pty::open().expect("a terminal");
    let mut command = command(&scene, &["--grace", "200ms"], "echo hello >&2; read end");
    let mut leash =
        command.stdin(Stdio::piped()).stderr(pty.terminal().expect("its other side")).spawn().expect("leash");
    pty.wait_shown("hello", 1).expect("it is shown");
    drop(leash.stdin.take());
    leash.wait().expect("it is ours");
    assert_eq!(lines(&scene, "x"), ["hello"]);
    check_gone(&scene);
}

/// Without leash, SIGPIPE would end this server.
#[test]
fn host_that_closes_its_stderr_does_not_end_the_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = command(&scene, &["--grace", "200ms"], &format!("read go; {MUCH}; exit 7"));
    let mut leash = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("leash");
    drop(leash.stderr.take());
    std::io::Write::write_all(leash.stdin.as_mut().expect("a pipe"), b"go\n").expect("the server reads");
    assert_eq!(wait::until("its exit", || leash.try_wait().expect("it is ours")).code(), Some(7));
    assert_eq!(lines(&scene, "x").len(), 3000);
    check_gone(&scene);
}

/// A server that writes without an end waits for its host, and is ended like any other.
#[test]
fn host_that_never_reads_holds_up_the_server_and_nothing_else() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = command(&scene, &["--grace", "200ms"], "yes 0123456789012345678 >&2");
    let mut leash = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("leash");
    let mut stderr = leash.stderr.take().expect("a pipe");
    wait::until("the pipe to be full", || (rustix::io::ioctl_fionread(&stderr).ok()? > 60_000).then_some(()));
    drop(leash.stdin.take());
    scene.wait_gone(&[]).expect("the server ends with its input");
    leash.wait().expect("it is ours");
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("it can be read");
    assert!(said.lines().rev().skip(1).all(|line| line == "0123456789012345678"), "no byte is missing in between");
}

/// The state directory is on a disk that is full.
#[test]
fn full_disk_costs_the_log_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: only root can mount a small disk");
    }
    let scene = or_skip!(Scene::set(Who::Root));
    fs::create_dir_all(scene.dir().join("state")).expect("a directory");
    let mut command = scene.zoo(["ns", "--tmpfs", "state", "--fill", "state", "--"]);
    // The server waits after its first line, until the host has read the warning: leash drops a warning that a full pipe
    // does not take.
    let words = run_words(&scene, &["--grace", "200ms"], &format!("echo first >&2; read go; {MUCH}; exit 3"));
    command.args(words).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut leash = command.spawn().expect("cannot start it");
    let mut stderr = BufReader::new(leash.stderr.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains("warning: the log in ") {
        assert_ne!(stderr.read_line(&mut said).expect("it is text"), 0, "no warning: {said}");
    }
    std::io::Write::write_all(leash.stdin.as_mut().expect("a pipe"), b"go\n").expect("the server reads");
    stderr.read_to_string(&mut said).expect("it is text");
    assert_eq!(leash.wait().expect("it is ours").code(), Some(3), "{said}");
    // A warning may stand in the middle of a line of the server, which has several pieces.
    let mut warnings = Vec::new();
    while let Some(at) = said.find("warning: ") {
        let end = at + said[at..].find('\n').expect("a whole line") + 1;
        warnings.push(said.drain(at..end).collect::<String>());
    }
    let expected = [b"first\n".as_slice(), &much()].concat();
    assert!(said.as_bytes() == expected, "the host gets every byte: {} of them", said.len());
    let about_log = warnings.iter().filter(|warning| warning.starts_with("warning: the log in ")).count();
    assert_eq!(about_log, 1, "{warnings:?}");
    check_gone(&scene);
}

#[test]
fn without_the_option_no_log_is_kept() {
    let scene = or_skip!(Scene::set(Who::User));
    assert_eq!(scene.answer(["run", "--name", "x", "--", "sh", "-c", "echo one >&2; exit 3"]).code, 3);
    let answer = scene.answer(["logs", "x"]);
    assert_eq!((answer.code, &*answer.stdout), (1, ""), "{answer:?}");
    assert!(!scene.dir().join("state/leash/logs").exists());
}

#[test]
fn variable_and_file_turn_the_log_on() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let config = scene.dir().join("config/leash");
    fs::create_dir_all(&config).expect("a directory");
    fs::write(config.join("leash.json"), r#"{"run": {"log": true}}"#).expect("a file");
    scene.set_env("XDG_CONFIG_HOME", scene.dir().join("config"));
    assert_eq!(scene.answer(["run", "--name", "by-file", "--", "sh", "-c", "echo one >&2"]).code, 0);
    scene.set_env("XDG_CONFIG_HOME", scene.dir().join("none"));
    scene.set_env("LEASH_RUN_LOG", "1");
    assert_eq!(scene.answer(["run", "--name", "by-variable", "--", "sh", "-c", "echo two >&2"]).code, 0);
    scene.set_env("LEASH_RUN_LOG", "0");
    assert_eq!(scene.answer(["run", "--name", "without", "--", "sh", "-c", "echo three >&2"]).code, 0);
    // No name here is the beginning of a run's id, which `leash logs` takes, too.
    assert_eq!(
        (lines(&scene, "by-file"), lines(&scene, "by-variable")),
        (vec!["one".to_owned()], vec!["two".to_owned()])
    );
    assert!(lines(&scene, "without").is_empty());
}
