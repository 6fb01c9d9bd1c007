//! Scans real processes with real pipes and sockets.
#![expect(clippy::disallowed_methods, reason = "the test starts the servers that it scans")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};

use super::*;
use crate::knowledge::DeclaredCommand;
use leash_model::id;

mod again;

/// A process that is killed at the end of the test.
struct Sleeper(Child);

impl Sleeper {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A unique process name, declared as a server.
struct Stage {
    name: String,
    knowledge: Knowledge,
}

impl Stage {
    fn set() -> Stage {
        let name = format!("leash-test-{}", id::random());
        let command = vec![name.clone(), "1000".to_owned()];
        let declared = DeclaredCommand {
            client: "Test".to_owned(),
            name: name.clone(),
            command,
            cwd: None,
            project: None,
            inside_only: false,
        };
        Stage { name, knowledge: Knowledge { declared: vec![declared], ..Knowledge::default() } }
    }

    fn start(&self, stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg0(&self.name).arg("1000").stdin(stdin).stdout(stdout);
        command.env("CLAUDECODE", "1").env("SECRET", "do not look");
        Sleeper(command.spawn().unwrap())
    }

    fn look(&self, server: &Sleeper) -> Process {
        let facts = scan(&Proc::own().unwrap(), &self.knowledge, &[]);
        facts.process(server.pid()).unwrap().clone()
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).unwrap()
}

fn me() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

fn holders(end: &OtherEnd) -> Vec<i32> {
    match end {
        OtherEnd::Held { by, .. } => by.iter().map(|id| id.pid).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn closed_pipe_ends_are_seen() {
    let stage = Stage::set();
    let ((stdin, to_server), (from_server, stdout)) = (pipe(), pipe());
    let server = stage.start(stdin, stdout);
    let seen = stage.look(&server);
    assert!(
        matches!(seen.stdin.kind, DescriptorKind::Pipe { .. })
            && matches!(seen.stdout.kind, DescriptorKind::Pipe { .. })
    );
    assert_eq!(holders(&seen.stdin.other_end), [me()]);
    assert_eq!(holders(&seen.stdout.other_end), [me()]);
    drop(to_server);
    let seen = stage.look(&server);
    assert_eq!(seen.stdin.other_end, OtherEnd::Gone);
    assert_eq!(holders(&seen.stdout.other_end), [me()]);
    drop(from_server);
    let seen = stage.look(&server);
    assert_eq!((seen.stdin.other_end, seen.stdout.other_end), (OtherEnd::Gone, OtherEnd::Gone));
}

#[test]
fn closed_socketpair_ends_are_seen() {
    let stage = Stage::set();
    let ((ours, stdin), (ours_too, stdout)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let server = stage.start(OwnedFd::from(stdin), OwnedFd::from(stdout));
    let seen = stage.look(&server);
    assert!(matches!(seen.stdin.kind, DescriptorKind::Socket { .. }));
    assert_eq!((holders(&seen.stdin.other_end), holders(&seen.stdout.other_end)), (vec![me()], vec![me()]));
    drop(ours);
    let seen = stage.look(&server);
    assert_eq!(seen.stdin.other_end, OtherEnd::Gone);
    assert_eq!(holders(&seen.stdout.other_end), [me()]);
    drop(ours_too);
    assert_eq!(stage.look(&server).stdout.other_end, OtherEnd::Gone);
}

/// A worker that inherited the host's end keeps the server alive.
#[test]
fn another_process_that_holds_the_end_is_found() {
    let stage = Stage::set();
    let ((stdin, to_server), (from_server, stdout)) = (pipe(), pipe());
    let server = stage.start(stdin, stdout);
    let worker = Sleeper(Command::new("sleep").arg("1000").stdin(from_server).stdout(to_server).spawn().unwrap());
    let seen = stage.look(&server);
    assert_eq!(
        (holders(&seen.stdin.other_end), holders(&seen.stdout.other_end)),
        (vec![worker.pid()], vec![worker.pid()])
    );
    drop(worker);
    let seen = stage.look(&server);
    assert_eq!((seen.stdin.other_end, seen.stdout.other_end), (OtherEnd::Gone, OtherEnd::Gone));
}

/// A copy of the server's own end is not the other end.
#[test]
fn a_copy_of_the_servers_own_end_does_not_hold_it() {
    let stage = Stage::set();
    let ((stdin, to_server), (from_server, stdout)) = (pipe(), pipe());
    let sharer = Sleeper(
        Command::new("sleep")
            .arg("1000")
            .stdin(stdin.try_clone().unwrap())
            .stdout(stdout.try_clone().unwrap())
            .spawn()
            .unwrap(),
    );
    let server = stage.start(stdin, stdout);
    drop((to_server, from_server));
    let seen = stage.look(&server);
    assert_eq!((seen.stdin.other_end, seen.stdout.other_end), (OtherEnd::Gone, OtherEnd::Gone));
    drop(sharer);
}

#[test]
fn files_and_the_null_device_have_no_other_end() {
    let stage = Stage::set();
    let file = File::open("/proc/self/exe").unwrap();
    let server = stage.start(Stdio::null(), Stdio::null());
    assert_eq!(stage.look(&server).stdin, Channel { kind: DescriptorKind::Null, other_end: OtherEnd::None });
    let server = stage.start(file, Stdio::null());
    assert_eq!(stage.look(&server).stdin, Channel { kind: DescriptorKind::File, other_end: OtherEnd::None });
}

#[test]
fn nothing_is_read_from_a_pipe_and_only_marks_from_the_environment() {
    let stage = Stage::set();
    let ((stdin, to_server), (_from_server, stdout)) = (pipe(), pipe());
    let mut spy = File::from(stdin.try_clone().unwrap());
    let server = stage.start(stdin, stdout);
    let mut to_server = File::from(to_server);
    to_server.write_all(b"hello").unwrap();
    let seen = stage.look(&server);
    assert_eq!(seen.marks.into_iter().collect::<Vec<_>>(), [("CLAUDECODE".to_owned(), "1".to_owned())]);
    let mut heard = [0; 5];
    spy.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

/// A scan neither delays nor hides the end of a server's output.
#[test]
fn the_host_still_sees_the_end_of_a_dead_servers_output() {
    let stage = Stage::set();
    let ((stdin, to_server), (from_server, stdout)) = (pipe(), pipe());
    let server = stage.start(stdin, stdout);
    drop(to_server);
    stage.look(&server);
    drop(server);
    assert_eq!(File::from(from_server).read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn descriptors_of_unrelated_processes_are_not_read() {
    let stage = Stage::set();
    let other = Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::piped()).spawn().unwrap());
    let facts = scan(&Proc::own().unwrap(), &stage.knowledge, &[]);
    let seen = facts.process(other.pid()).unwrap();
    assert_eq!((seen.stdin.kind, seen.ppid), (DescriptorKind::NotAsked, me()));
    assert!(seen.marks.is_empty());
    assert!(facts.ancestors(seen).any(|above| above.id.pid == me()));
    let asked = scan(&Proc::own().unwrap(), &stage.knowledge, &[other.pid()]);
    assert_eq!(holders(&asked.process(other.pid()).unwrap().stdin.other_end), [me()]);
}
