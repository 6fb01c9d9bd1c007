//! Who a process is. A bare number is never trusted: Linux reused one after 20 forks in a small PID namespace.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::time::Timespec;

use leash_model::identity::Identity;

use super::proc;
use super::proc::{Proc, Stat};

/// A process held by a pidfd: signals through it can never reach a stranger.
#[derive(Debug)]
pub struct Held {
    /// Who it is.
    pub id: Identity,
    /// What /proc said of it when it was opened.
    pub stat: Stat,
    fd: OwnedFd,
}

impl Held {
    /// Opens the process that has this number now. `None` when there is none, or when it can't be opened.
    pub fn open(proc: &Proc, pid: i32) -> Option<Held> {
        Held::find(proc, pid).ok().flatten()
    }

    /// The same, with a difference between the two: `None` is proved, an error says that there may be a process.
    pub(crate) fn find(proc: &Proc, pid: i32) -> Result<Option<Held>, Errno> {
        let fd = match pidfd(pid) {
            Err(Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // Read after the pidfd was opened: if the number went to somebody else in between, the pidfd belongs to the dead
        // one and every signal through it fails with ESRCH.
        let stat = proc.look(pid).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        match stat {
            Some(stat) => {
                let id = Identity { pid, start: stat.start, inode: pidfs_inode(fd.as_fd()) };
                Ok(Some(Held { id, stat, fd }))
            }
            None if has_ended(fd.as_fd()) => Ok(None),
            // /proc hides it (`hidepid`), and it lives.
            None => Err(Errno::ACCESS),
        }
    }

    /// Opens exactly the process recorded as `id`. `None` when it is gone, even if its number lives on.
    pub fn open_same(proc: &Proc, id: Identity) -> Option<Held> {
        let held = Held::open(proc, id.pid)?;
        held.id.is(&id).then_some(held)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(&self.fd, signal)
    }

    /// Whether it has not ended, asked of the kernel through the pidfd.
    pub fn lives(&self) -> bool {
        !has_ended(self.fd.as_fd())
    }

    /// Gives the pidfd away, for polling.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// This process.
pub fn current(proc: &Proc) -> Option<Identity> {
    Held::open(proc, rustix::process::getpid().as_raw_pid()).map(|held| held.id)
}

/// True if exactly this process still runs. A zombie does not.
pub fn is_alive(id: Identity, proc: &Proc) -> bool {
    Held::open_same(proc, id).is_some() && proc.stat(id.pid).is_some_and(|stat| stat.start == id.start && !stat.dead())
}

/// Opens a pidfd (close-on-exec, as all pidfds are).
pub fn pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Whether a process is our child and was not waited for: then its number is its own.
pub(crate) fn is_own_child(pid: i32) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::waitid(WaitId::Pid(pid), look).is_ok())
}

/// Whether no process with this number runs, asked of the kernel. A zombie has ended; without an answer nothing has.
pub(crate) fn number_has_ended(pid: i32) -> bool {
    match pidfd(pid) {
        Ok(fd) => has_ended(fd.as_fd()),
        Err(errno) => errno == Errno::SRCH,
    }
}

/// Whether the process of a pidfd has ended, asked of the kernel. Without an answer it has not: a signal may interrupt even
/// a poll that does not wait, and a living owner must never be taken for a dead one.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&at_once)) {
            Err(Errno::INTR) => {}
            answer => return matches!(answer, Ok(1..)),
        }
    }
}

/// The pidfs inode of a pidfd; `None` on kernels where all pidfds share one anonymous inode.
pub(crate) fn pidfs_inode(fd: BorrowedFd<'_>) -> Option<u64> {
    /// From linux/magic.h: `PID_FS_MAGIC`, "PIDF".
    const PIDFS: u64 = 0x5049_4446;
    let fs = rustix::fs::fstatfs(fd).ok()?;
    (fs.f_type as u64 == PIDFS).then(|| rustix::fs::fstat(fd).ok().map(|stat| stat.st_ino)).flatten()
}

/// The id of this boot; records of another boot name nobody.
pub fn boot_id() -> String {
    proc::read_small("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The id of our PID namespace; 0 where it can't be told.
pub fn pid_namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}
