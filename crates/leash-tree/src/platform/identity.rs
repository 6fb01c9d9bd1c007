//! The identity of a process. leash never trusts a bare number: in a small PID namespace Linux reused one after 20
//! forks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::time::Timespec;

use leash_model::identity::Identity;

use super::proc::{self, Proc, Stat};

/// A process held by a pidfd: signals through it can never reach another process.
#[derive(Debug)]
pub struct HeldProcess {
    /// Its identity.
    pub id: Identity,
    /// The `stat` of the process when it was opened.
    pub stat: Stat,
    fd: OwnedFd,
}

impl HeldProcess {
    /// Opens the process that has this number now. `None` if there is none, or if it can't be opened.
    pub fn open(proc: &Proc, pid: i32) -> Option<HeldProcess> {
        HeldProcess::find(proc, pid).ok().flatten()
    }

    /// The same as [`HeldProcess::open`], but tells the two cases apart: `None` proves that there is no process, an
    /// error means that there may be one.
    pub(crate) fn find(proc: &Proc, pid: i32) -> Result<Option<HeldProcess>, Errno> {
        let fd = match pidfd(pid) {
            Err(Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // Read after the pidfd was opened. If another process got the number in between, the pidfd belongs to the dead
        // one, and every signal through it fails with ESRCH.
        let stat = proc.try_stat(pid).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        match stat {
            Some(stat) => {
                let id = Identity { pid, start: stat.start, inode: pidfs_inode(fd.as_fd()) };
                Ok(Some(HeldProcess { id, stat, fd }))
            }
            None if has_ended(fd.as_fd()) => Ok(None),
            // `hidepid` hides the process, but it lives.
            None => Err(Errno::ACCESS),
        }
    }

    /// Opens exactly the process recorded as `id`. `None` if it is gone, even if another process has its number.
    pub fn open_same(proc: &Proc, id: Identity) -> Option<HeldProcess> {
        let held = HeldProcess::open(proc, id.pid)?;
        held.id.is(&id).then_some(held)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(&self.fd, signal)
    }

    /// True if the process has not ended. Asks the kernel through the pidfd.
    pub fn lives(&self) -> bool {
        !has_ended(self.fd.as_fd())
    }

    /// Another descriptor of the same process, for polling.
    pub fn copy_fd(&self) -> Option<OwnedFd> {
        self.fd.try_clone().ok()
    }
}

impl AsFd for HeldProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// This process.
pub fn current(proc: &Proc) -> Option<Identity> {
    HeldProcess::open(proc, rustix::process::getpid().as_raw_pid()).map(|held| held.id)
}

/// True if exactly this process still runs. A zombie does not.
pub fn is_alive(id: Identity, proc: &Proc) -> bool {
    HeldProcess::open_same(proc, id).is_some()
        && proc.stat(id.pid).is_some_and(|stat| stat.start == id.start && !stat.dead())
}

/// Opens a pidfd (close-on-exec, as all pidfds are).
pub fn pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// True if a process is our child and we have not waited for it. Then no other process can have its number.
pub(crate) fn is_own_child(pid: i32) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::waitid(WaitId::Pid(pid), look).is_ok())
}

/// True if no process with this number runs, by the kernel's answer. A zombie has ended. Without an answer the process
/// counts as running.
pub(crate) fn number_has_ended(pid: i32) -> bool {
    match pidfd(pid) {
        Ok(fd) => has_ended(fd.as_fd()),
        Err(errno) => errno == Errno::SRCH,
    }
}

/// True if the process of a pidfd has ended, by the kernel's answer. Without an answer it counts as running: a signal
/// may interrupt even a poll that does not wait, and leash must never take a living owner for a dead one.
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

/// The id of this boot. The identities in records of another boot are not valid.
pub fn boot_id() -> String {
    proc::read_small("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The id of our PID namespace; 0 if it can't be read.
pub fn pid_namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}
