//! The preparations of a supervisor before it starts a keeper, and the start itself.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, WaitOptions, getpid};

use super::control::{CommandLine, Orders, fds};
use super::failure::failed;
use super::keeper;
use super::spec::Spec;
use super::stderr_copy::StderrPipe;
use super::supervised::ServerStdio;
use crate::contain::leaf;
use crate::ledger::store::LockedRun;
use crate::owner::OwnerWatch;
use crate::platform::command;
use crate::platform::identity::{self, boot_id, pid_namespace};
use crate::platform::proc::Proc;
use crate::platform::{channel, linux, resolve};
use leash_model::identity::Identity;
use leash_model::receipt::{EndedBy, Reason, Receipt, VERSION};
use leash_model::record::{IdleStop, Phase, RECORD_VERSION, Record};
use leash_model::start_failure::StartFailure;
use leash_model::{clock, duration};

/// The step that failed if there is no keeper.
pub(super) const NO_KEEPER: &str = "cannot start the keeper";

/// The program to execute, found and checked before anything is started.
pub(super) fn command_line(spec: &Spec) -> Result<CommandLine, StartFailure> {
    let command = spec.command.first().ok_or(StartFailure::NoCommand)?;
    let changed = spec.env.iter().rev().find(|(key, _)| key == "PATH").map(|(_, value)| value.clone());
    let path = changed.unwrap_or_else(|| std::env::var_os("PATH"));
    let file = resolve::resolve(command, path.as_deref(), spec.cwd.as_deref())?;
    Ok(CommandLine {
        path: file.into_os_string(),
        cwd: spec.cwd.clone().map(PathBuf::into_os_string),
        argv: spec.command.clone(),
    })
}

/// The record of a run, written before the run exists.
pub(super) fn new_record(spec: &Spec, receipts: &Path, watches: &[OwnerWatch], proc: Option<&Proc>) -> Record {
    let leaf = leaf::own_cgroup().ok().map(|dir| dir.join(format!("leash-{}", spec.run)));
    Record {
        version: RECORD_VERSION,
        boot: boot_id(),
        pid_namespace: pid_namespace(),
        run: spec.run.clone(),
        session: spec.session.clone(),
        name: spec.name(),
        labels: spec.labels.clone(),
        command: spec.shown_command(),
        owners: watches.iter().map(|watch| watch.owner.clone()).collect(),
        phase: Phase::Starting,
        supervisor: proc
            .map_or_else(|| Some(Identity { pid: getpid().as_raw_pid(), start: 0, inode: None }), identity::current),
        shared: false,
        keeper: None,
        leader: None,
        members: Vec::new(),
        entered: Vec::new(),
        memory_bytes: 0,
        containment: None,
        refused: Vec::new(),
        leaf,
        spare: spec.spare.clone(),
        grace_ms: duration::as_ms(spec.pace()),
        client: None,
        patient: spec.patient,
        idle_stop: spec.pressure_stop.map(IdleStop::under_pressure),
        started_ms: clock::unix_ms(),
        receipts: receipts.to_owned(),
        over: None,
    }
}

/// The receipt of a start that failed: the session held nothing.
pub(super) fn failed_receipt(spec: &Spec, failure: &StartFailure) -> Receipt {
    let now = clock::unix_ms();
    Receipt {
        version: VERSION,
        session: spec.session.clone(),
        run: spec.run.clone(),
        name: spec.name(),
        labels: spec.labels.clone(),
        reason: Reason::StartFailed { why: Some(Box::new(failure.clone())) },
        client: None,
        containment: None,
        refused: if let StartFailure::Contain { refused } = failure { refused.clone() } else { Vec::new() },
        holdings: Vec::new(),
        dropped_holdings: 0,
        ended_by: EndedBy::Supervisor,
        started_ms: now,
        ended_ms: now,
        took_ms: 0,
    }
}

/// Everything that a start of a keeper needs.
pub(super) struct KeeperLaunch<'a> {
    pub(super) orders: Orders,
    pub(super) command: CommandLine,
    pub(super) stdio: ServerStdio<'a>,
    pub(super) locked_run: &'a LockedRun,
    pub(super) watches: &'a [OwnerWatch],
    /// The pipe for the server's stderr, and its writing end, if leash copies it.
    pub(super) stderr: Option<(&'a StderrPipe, OwnedFd)>,
}

/// A keeper that was started.
pub(super) struct Launched {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) control: OwnedFd,
}

impl KeeperLaunch<'_> {
    /// Starts the keeper: a fork of this process. It costs less time and memory than a program that is executed anew.
    pub(super) fn launch(self) -> Result<Launched, StartFailure> {
        let resource = |error: rustix::io::Errno| failed(NO_KEEPER, error);
        let (control, theirs) = channel::pair().map_err(resource)?;
        let copy = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(resource);
        let mut given = vec![
            (copy(self.stdio.stdin)?, 0),
            (copy(self.stdio.stdout)?, 1),
            (theirs, fds::CONTROL),
            (copy(self.locked_run.lock())?, fds::LOCK),
            (identity::pidfd(getpid().as_raw_pid()).map_err(resource)?, fds::SUPERVISOR),
        ];
        for (watch, number) in self.watches.iter().zip(fds::OWNERS..) {
            given.push((copy(watch.as_fd())?, number));
        }
        let stderr = match self.stderr {
            Some((pipe, writer)) => {
                let next = fds::OWNERS + self.watches.len() as i32;
                given.push((copy(pipe.reader.as_fd())?, next));
                given.push((copy(pipe.host.as_fd())?, next + 1));
                writer
            }
            None => copy(self.stdio.stderr)?,
        };
        given.push((stderr, 2));
        let (orders, command) = (self.orders, self.command);
        let pid = command::fork(given, move || keeper::run(orders, command)).map_err(resource)?;
        let pidfd = identity::pidfd(pid).map_err(|error| {
            let _ = linux::kill_own_child(pid);
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
            resource(error)
        })?;
        Ok(Launched { pid, pidfd, control })
    }
}
