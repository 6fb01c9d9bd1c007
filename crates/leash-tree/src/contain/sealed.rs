//! `sealed`: a PID namespace. When its first process dies, the kernel kills all others. That process dies with the
//! keeper, so the tree ends even if no process of leash is alive.
//!
//! ```text
//! keeper -> init (pid 1 inside: reaps; death signal from the keeper) -> launcher (pid 2) -> server
//! ```
//! Many servers take "my parent is pid 1" for "I am orphaned", so the launcher is their parent. As root the namespace
//! is made directly. An ordinary user needs a user namespace around it, in which ids map to themselves.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, WaitOptions};

use crate::platform::linux::{self, CloneInto, Forked};
use crate::platform::proc::Proc;
use crate::platform::spawn::{self, Program, ReportPipe, SpawnError, SpawnStep};
use leash_model::receipt::Exit;

/// A sealed tree as the keeper holds it.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The namespace's first process, our direct child.
    pub(crate) init: i32,
    /// The launcher, by its number in our namespace.
    pub(crate) launcher: Option<i32>,
    /// The server.
    pub(crate) leader: Option<i32>,
    /// The launcher writes the server's wait status here.
    status: OwnedFd,
}

/// Makes the namespace and starts the server in it.
pub(crate) fn spawn(program: &Program, proc: Option<&Proc>) -> Result<Sealed, SpawnError> {
    let (mut progress, report) = spawn::report_pipe()?;
    let (go_reader, go_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::Pipe)?;
    let (status, status_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::Pipe)?;
    let user = Ids { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let namespaces =
        (libc::CLONE_NEWPID | libc::CLONE_NEWNS | if user.uid == 0 { 0 } else { libc::CLONE_NEWUSER }) as u64;
    let init = match linux::fork_into(CloneInto { namespaces, cgroup: None }).map_err(SpawnError::Clone)? {
        Forked::Child => {
            drop(go_writer);
            become_init(program, user, report, go_reader, status_writer)
        }
        Forked::Parent(pid) => pid,
    };
    drop((report, go_reader, status_writer));
    let failure = match progress.next() {
        Some((SpawnStep::Armed, _)) => {
            // From here on the kernel ends the namespace when we die; before that, the closed pipe would have ended it.
            let _ = rustix::io::write(&go_writer, b"g");
            progress.next()
        }
        other => other.or(Some((SpawnStep::Fork, Errno::SRCH))),
    };
    if let Some((stage, errno)) = failure {
        let _ = linux::kill_own_child(init);
        let _ = rustix::process::waitpid(rustix::process::Pid::from_raw(init), WaitOptions::empty());
        return Err(SpawnError::At(stage, errno));
    }
    let launcher = proc.and_then(|proc| proc.children(init).found.first().copied());
    let leader = proc.zip(launcher).and_then(|(proc, launcher)| proc.children(launcher).found.first().copied());
    let _ = rustix::io::ioctl_fionbio(&status, true);
    Ok(Sealed { init, launcher, leader, status })
}

impl Sealed {
    /// The server's exit, once the launcher has reported it. A killed launcher reports nothing; the kernel has then
    /// killed the server, by its death signal.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let mut raw = [0; 4];
        match rustix::io::read(&self.status, &mut raw) {
            Ok(4) => linux::exit_of(i32::from_le_bytes(raw)),
            Ok(_) => Some(Exit::Signal(libc::SIGKILL)),
            Err(_) => None,
        }
    }

    /// Readable once [`Sealed::exit`] has an answer.
    pub(crate) fn status(&self) -> BorrowedFd<'_> {
        self.status.as_fd()
    }

    /// True if `pid` is a process of leash and not of the server.
    pub(crate) fn ours(&self, pid: i32) -> bool {
        pid == self.init || Some(pid) == self.launcher
    }
}

#[derive(Clone, Copy)]
struct Ids {
    uid: u32,
    gid: u32,
}

/// Runs as pid 1 of the namespace: prepares it, starts the launcher, and reaps until nothing is left.
fn become_init(program: &Program, user: Ids, report: ReportPipe, go: OwnedFd, status: OwnedFd) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // getppid is always 0 here, so we check the keeper by its pipe: end of file means that it died before the death
    // signal was armed.
    report.armed();
    let mut word = [0];
    if fs::File::from(go).read_exact(&mut word).is_err() {
        linux::exit_now(0);
    }
    linux::block_all();
    if user.uid != 0
        && let Err(errno) = map_user(user)
    {
        report.fail(SpawnStep::UserMap, errno);
    }
    if let Err(errno) = mount_proc() {
        report.fail(SpawnStep::MountProc, errno);
    }
    match linux::fork_into(CloneInto::default()) {
        Err(errno) => report.fail(SpawnStep::Fork, errno),
        Ok(Forked::Child) => become_launcher(program, report, status),
        Ok(Forked::Parent(_)) => {}
    }
    drop((report, status));
    spawn::detach_stdio();
    linux::close_from(3);
    // Orphans of the namespace become our children. When none is left, the namespace may end.
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    linux::exit_now(0)
}

/// Runs as pid 2: the server's parent, which reports the server's exit.
fn become_launcher(program: &Program, report: ReportPipe, status: OwnedFd) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let parent = rustix::process::getpid();
    let server = match linux::fork_into(CloneInto::default()) {
        Err(errno) => report.fail(SpawnStep::Fork, errno),
        Ok(Forked::Child) => spawn::become_server(program, parent, &report),
        Ok(Forked::Parent(pid)) => pid,
    };
    drop(report);
    spawn::detach_stdio();
    // This also closes the ledger's lock, which must not outlive supervisor and keeper.
    let status = linux::keep_only(status.as_raw_fd());
    let status_of = |pid| rustix::process::waitpid(rustix::process::Pid::from_raw(pid), WaitOptions::empty());
    let ended = loop {
        match status_of(server) {
            Ok(Some((_, ended))) => break ended,
            Err(Errno::INTR) | Ok(None) => {}
            Err(_) => linux::exit_now(1),
        }
    };
    let _ = rustix::io::write(&status, &ended.as_raw().to_le_bytes());
    linux::exit_now(0)
}

/// Maps the user and its group to themselves.
fn map_user(user: Ids) -> Result<(), Errno> {
    let write = |path: &str, text: String| {
        fs::write(Path::new(path), text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{0} {0} 1", user.uid))?;
    write("/proc/self/gid_map", format!("{0} {0} 1", user.gid))
}

/// Mounts a /proc that shows the namespace. Without it every pid that the server reads would be another process's.
fn mount_proc() -> Result<(), Errno> {
    // Mounts made outside still appear inside; ours do not appear outside.
    let quiet = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", quiet)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)
}

/// The reason for a failure, ready to be shown; `None` if the containment did not cause it.
pub(crate) fn explain(error: SpawnError) -> Option<String> {
    match error {
        SpawnError::Clone(Errno::AGAIN | Errno::NOMEM) | SpawnError::Pipe(_) => None,
        SpawnError::Clone(Errno::NOSPC) => {
            Some("no more user namespaces are allowed (user.max_user_namespaces)".to_owned())
        }
        SpawnError::Clone(errno) => Some(format!("making a PID namespace: {errno}")),
        SpawnError::At(SpawnStep::UserMap, errno) => Some(format!("mapping the user into a user namespace: {errno}")),
        SpawnError::At(SpawnStep::MountProc, errno) => Some(format!("mounting /proc in the namespace: {errno}")),
        SpawnError::At(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_containment_are_explained() {
        let cases = [
            (SpawnError::Clone(Errno::NOSPC), Some("user.max_user_namespaces")),
            (SpawnError::Clone(Errno::PERM), Some("making a PID namespace")),
            (SpawnError::Clone(Errno::NOSYS), Some("making a PID namespace")),
            (SpawnError::At(SpawnStep::UserMap, Errno::PERM), Some("mapping the user")),
            (SpawnError::At(SpawnStep::MountProc, Errno::PERM), Some("mounting /proc")),
            // The next containment would fail in the same way.
            (SpawnError::Clone(Errno::AGAIN), None),
            (SpawnError::Clone(Errno::NOMEM), None),
            (SpawnError::Pipe(Errno::MFILE), None),
            (SpawnError::At(SpawnStep::Exec, Errno::NOENT), None),
            (SpawnError::At(SpawnStep::Chdir, Errno::NOENT), None),
            (SpawnError::At(SpawnStep::Fork, Errno::AGAIN), None),
        ];
        for (error, part) in cases {
            let text = explain(error);
            assert_eq!(text.is_some(), part.is_some(), "{error:?}: {text:?}");
            assert!(text.unwrap_or_default().contains(part.unwrap_or_default()), "{error:?}");
        }
    }
}
