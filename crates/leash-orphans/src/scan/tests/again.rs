//! The processes that a scan remembers, and those that it reads again.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use testkit::wait::{LIMIT, within};

use super::*;
use crate::scan::unrelated::SCANS;

/// A memory without the minimum age.
fn trusting() -> UnrelatedProcesses {
    let mut unrelated = UnrelatedProcesses::default();
    unrelated.exec_age = Duration::ZERO;
    unrelated
}

impl Stage {
    fn look_again(&self, unrelated: &mut UnrelatedProcesses) -> Facts {
        scan_again(&Proc::own().unwrap(), &self.knowledge, unrelated)
    }
}

fn shell(script: &str) -> Sleeper {
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Sleeper(command.spawn().unwrap())
}

fn line(sleeper: &mut Sleeper) -> String {
    let mut line = String::new();
    BufReader::new(sleeper.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn an_unrelated_process_is_read_only_every_tenth_scan() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let process = Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    let first = stage.look_again(&mut unrelated).process(process.pid()).unwrap().clone();
    assert_eq!(first.comm, "sleep");
    for _ in 1..SCANS {
        let again = stage.look_again(&mut unrelated).process(process.pid()).unwrap().clone();
        assert!(again.comm.is_empty(), "the process was read again");
        assert!(again.id.is(&first.id));
        assert_eq!((again.ppid, again.session, again.uid), (first.ppid, first.session, first.uid));
    }
    assert_eq!(
        stage.look_again(&mut unrelated).process(process.pid()).unwrap().comm,
        "sleep",
        "the process was not read again"
    );
}

#[test]
fn young_processes_are_not_remembered() {
    let stage = Stage::set();
    let mut unrelated = UnrelatedProcesses::default();
    unrelated.exec_age = Duration::from_secs(366 * 24 * 3600);
    let process = Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    for _ in 0..2 {
        assert_eq!(stage.look_again(&mut unrelated).process(process.pid()).unwrap().comm, "sleep");
    }
}

#[test]
fn dead_processes_are_forgotten() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let process = Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    let pid = process.pid();
    assert!(stage.look_again(&mut unrelated).process(pid).is_some());
    drop(process);
    assert!(stage.look_again(&mut unrelated).process(pid).is_none_or(|other| !other.comm.is_empty()));
}

/// A remembered process is read again before it is taken for the host or holder of a server.
#[test]
fn the_ancestors_of_a_server_are_read_again() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    stage.look_again(&mut unrelated);
    stage.look_again(&mut unrelated);
    let ((stdin, _to_server), (_from_server, stdout)) = (pipe(), pipe());
    let server = stage.start(stdin, stdout);
    for _ in 0..2 {
        let facts = stage.look_again(&mut unrelated);
        let ourselves = facts.process(me()).unwrap();
        assert!(!ourselves.comm.is_empty() && !ourselves.argv.is_empty(), "{ourselves:?}");
        assert_eq!(holders(&facts.process(server.pid()).unwrap().stdin.other_end), [me()]);
    }
}

#[test]
fn a_remembered_holder_is_read_again() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let ((stdin, to_server), (_from_server, stdout)) = (pipe(), pipe());
    let holder = Sleeper(Command::new("sleep").arg("1000").stdin(to_server).spawn().unwrap());
    stage.look_again(&mut unrelated);
    let server = stage.start(stdin, stdout);
    let facts = stage.look_again(&mut unrelated);
    assert_eq!(holders(&facts.process(server.pid()).unwrap().stdin.other_end), [holder.pid()]);
    assert_eq!(facts.process(holder.pid()).unwrap().comm, "sleep");
}

#[test]
fn a_newly_declared_server_is_found_at_once() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let ((stdin, _to_server), (_from_server, stdout)) = (pipe(), pipe());
    let server = stage.start(stdin, stdout);
    let proc = Proc::own().unwrap();
    for _ in 0..2 {
        let facts = scan_again(&proc, &Knowledge::default(), &mut unrelated);
        assert_eq!(facts.process(server.pid()).unwrap().stdin.kind, DescriptorKind::NotAsked);
    }
    let facts = stage.look_again(&mut unrelated);
    assert!(matches!(facts.process(server.pid()).unwrap().stdin.kind, DescriptorKind::Pipe { .. }));
}

#[test]
fn a_remembered_process_that_becomes_a_server_is_found_after_some_scans() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let mut server = shell(&format!("echo up; read -r go; exec -a {} sleep 1000", stage.name));
    line(&mut server);
    assert_eq!(stage.look_again(&mut unrelated).process(server.pid()).unwrap().stdin.kind, DescriptorKind::NotAsked);
    server.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let proc = Proc::own().unwrap();
    let became = || (proc.argv(server.pid()).first() == Some(&stage.name)).then_some(());
    within(LIMIT, became).expect("the process is still a shell");
    let found = |facts: Facts| matches!(facts.process(server.pid()).unwrap().stdin.kind, DescriptorKind::Pipe { .. });
    assert!((0..SCANS).any(|_| found(stage.look_again(&mut unrelated))));
}

#[test]
fn a_remembered_process_that_loses_its_parent_shows_the_new_one() {
    let stage = Stage::set();
    let mut unrelated = trusting();
    let mut parent = shell("sleep 1000 </dev/null >/dev/null & echo $!; read -r go; exit 0");
    let pid: i32 = line(&mut parent).parse().unwrap();
    let held = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    let child = stage.look_again(&mut unrelated).process(pid).unwrap().clone();
    assert_eq!(child.ppid, parent.pid());
    drop(parent.0.stdin.take());
    parent.0.wait().unwrap();
    let seen = stage.look_again(&mut unrelated).process(pid).unwrap().clone();
    pidfd_send_signal(&held, Signal::KILL).unwrap();
    assert_ne!(seen.ppid, child.ppid);
    assert!(seen.id.is(&child.id));
}
