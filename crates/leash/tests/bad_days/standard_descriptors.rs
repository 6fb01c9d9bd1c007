//! stdin, stdout and stderr are not the pipes of a host.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use testkit::host::{Channel, Manner};
use testkit::or_skip;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{answer, check_gone, start};

/// Runs `zoo exit 3` with unusual descriptors.
fn check_code(prepare: impl FnOnce(&Scene, &mut Command)) {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.leash(["run", "--grace", "100ms", "--"]);
    command.arg(scene.zoo_path()).args(["exit", "3"]);
    prepare(&scene, &mut command);
    assert_eq!(answer(&mut command).code, 3);
    check_gone(&scene, &[]);
}

#[test]
fn stdin_closed() {
    check_code(|_, command| sys::prepare(command, vec![Step::Close(0)]));
}

#[test]
fn stdout_closed() {
    check_code(|_, command| sys::prepare(command, vec![Step::Close(1)]));
}

#[test]
fn all_closed() {
    check_code(|_, command| sys::prepare(command, vec![Step::Close(0), Step::Close(1), Step::Close(2)]));
}

#[test]
fn stdin_is_null() {
    check_code(|_, command| {
        command.stdin(Stdio::null());
    });
}

#[test]
fn stdin_is_a_file() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("requests");
    fs::write(&file, "one\ntwo\n").expect("cannot write a file");
    let mut command = scene.leash(["run", "--"]);
    command.arg(scene.zoo_path()).arg("cat").stdin(fs::File::open(file).expect("cannot open it"));
    let answer = answer(&mut command);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, "one\ntwo\n"), "{answer:?}");
    check_gone(&scene, &[]);
}

/// With `/dev/null` as stdin, leash watches the host process itself.
#[test]
fn host_of_a_null_stdin_is_watched() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let manner = Manner { channel: Channel::DevNull, ..Manner::default() };
    let host = start(&mut scene, &manner, &["--grace", "100ms"], "stubborn");
    host.signal(Signal::KILL);
    check_gone(&scene, &[host.pid()]);
}

/// A leash on a terminal, without a host with pipes, and its terminal.
fn start_in_terminal(scene: &mut Scene, tree: &str) -> (Pty, Child) {
    let pty = Pty::open().expect("cannot open a terminal");
    let terminal = || pty.terminal().expect("cannot open its other side");
    let words = scene.run_words(["--grace", "100ms"], &scene.tree::<&str>(tree, []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(terminal()).stdout(terminal()).stderr(terminal());
    sys::prepare(&mut command, vec![pty.control().expect("cannot control the terminal")]);
    let leash = command.spawn().expect("cannot start leash");
    drop(command);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    (pty, leash)
}

#[test]
fn terminal_is_closed() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (pty, mut leash) = start_in_terminal(&mut scene, "stubborn");
    pty.close();
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
}

/// Typed text reaches the server: the terminal shows it once, and the server's echo once more.
#[test]
fn terminal_is_read_by_the_server() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (pty, mut leash) = start_in_terminal(&mut scene, "polite");
    pty.enter("hello\n").expect("cannot type");
    pty.wait_shown("hello", 2).expect("the server does not answer");
    pty.close();
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
}

#[test]
fn interrupt_key_ends_the_server() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (pty, mut leash) = start_in_terminal(&mut scene, "stubborn");
    pty.enter("\u{3}").expect("cannot type");
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
    drop(pty);
}

/// leash has a message, and stderr has no reader.
#[test]
fn reader_of_stderr_is_gone() {
    let scene = or_skip!(Scene::set(Who::User));
    let (reader, writer) = std::io::pipe().expect("cannot make a pipe");
    drop(reader);
    let mut command = scene.leash(["run", "-v", "--"]);
    command.arg(scene.zoo_path()).args(["exit", "3"]).stderr(writer);
    assert_eq!(command.status().expect("cannot start leash").code(), Some(3));
    check_gone(&scene, &[]);
}

/// If leash blocked on stderr, a host that does not read stderr would block it for ever.
#[test]
fn unread_stderr_does_not_block_leash() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (reader, writer) = std::io::pipe().expect("cannot make a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("cannot fill the pipe");
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("cannot fill the pipe");
    let words = scene.run_words(["-v", "--grace", "100ms"], &scene.tree::<&str>("stubborn", []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(writer);
    let mut leash = command.spawn().expect("cannot start leash");
    drop(command);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    drop(leash.stdin.take());
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
    drop(reader);
}

/// A host that outlives its terminal, as under `nohup` or in a forgotten `tmux`: only the terminal shows it.
#[test]
fn closed_terminal_of_a_living_host_ends_the_server() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let manner = Manner { shrugs: vec![Signal::HUP], own_group: true, ..Manner::default() };
    let pty = Pty::open().expect("cannot open a terminal");
    let words = scene.run_words(["--grace", "100ms", "--owner", "tty"], &scene.tree::<&str>("stubborn", []));
    let host = scene.host(&manner, Some(&pty), &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    pty.close();
    check_gone(&scene, &[host.pid()]);
}

/// The server's output has no reader, and the server ends like any other.
#[test]
fn reader_of_stdout_is_gone() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--grace", "100ms"], &scene.tree::<&str>("full-stdout", []));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut leash = command.spawn().expect("cannot start leash");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    drop(leash.stdout.take());
    check_gone(&scene, &[]);
    leash.wait().expect("cannot wait for leash");
}
