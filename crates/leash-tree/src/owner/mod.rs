//! The owners of a session: processes, a terminal, the host's pipe. When one of them is gone, leash ends the session.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::process::{Pid, getpid, getppid};
use serde::{Deserialize, Serialize};

use leash_model::client::GatewayClient;
use leash_model::error::Cause;
use leash_model::owner::{Owner, OwnerError, OwnerWish, Role};
use leash_model::receipt::Reason;

use crate::platform::channel;
use crate::platform::identity::{self, HeldProcess};
use crate::platform::linux::InheritedSignals;
use crate::platform::proc::Proc;

pub mod peer;
pub mod wrapper;

/// An owner and the descriptor that reports its loss.
#[derive(Debug)]
pub struct OwnerWatch {
    /// The owner.
    pub owner: Owner,
    fd: OwnedFd,
}

impl OwnerWatch {
    /// An owner and its descriptor.
    pub fn new(owner: Owner, fd: OwnedFd) -> OwnerWatch {
        OwnerWatch { owner, fd }
    }

    /// The descriptor for poll. For stdin it is the host's own: leash never reads it and never changes its flags,
    /// because the host and the server share its open file description.
    pub fn poll(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.fd.as_fd(), self.events())
    }

    /// The events to poll for.
    pub fn events(&self) -> PollFlags {
        match self.owner {
            Owner::Process { .. } => PollFlags::IN,
            // The kernel reports the end of a pipe as POLLHUP, also if it is not asked for. For a socketpair, as Node
            // uses, it reports POLLRDHUP when the host has shut its side down.
            Owner::Stdin | Owner::Handle => PollFlags::RDHUP,
            Owner::Terminal => PollFlags::empty(),
        }
    }

    /// Returns the reason if an answer of poll means that the owner is gone.
    pub fn judge(&self, answer: PollFlags) -> Option<Reason> {
        let gone = match self.owner {
            Owner::Process { .. } => PollFlags::IN | PollFlags::HUP | PollFlags::ERR,
            Owner::Stdin | Owner::Handle => PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR,
            Owner::Terminal => PollFlags::HUP | PollFlags::ERR,
        };
        answer
            .intersects(gone)
            .then(|| stated_end(self).map_or_else(|| lost(&self.owner, answer), |stated| stated.reason))
    }
}

/// Returns the reason if a watched owner is already gone.
pub fn lost_by_now(watch: &OwnerWatch) -> Option<Reason> {
    let mut fds = [watch.poll()];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&at_once)).ok()?;
    watch.judge(fds[0].revents())
}

impl AsFd for OwnerWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The parent process, taken in the first instructions of `main`.
#[derive(Debug)]
pub struct Parent {
    pid: Option<Pid>,
    fd: Option<OwnedFd>,
}

impl Parent {
    /// Opens a pidfd of the parent. Call this first in `main`.
    pub fn take() -> Parent {
        let pid = getppid();
        let fd = pid.and_then(|pid| identity::pidfd(pid.as_raw_pid()).ok());
        Parent { pid, fd }
    }

    /// The parent's pidfd, if it is still our parent. For callers that only need to know whether it lives.
    pub fn living(self) -> Option<OwnedFd> {
        self.fd.filter(|_| self.pid.is_some() && getppid() == self.pid)
    }

    /// The same parent once more, for another tree.
    pub(crate) fn copy(&self) -> rustix::io::Result<Parent> {
        let fd = self.fd.as_ref().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3)).transpose()?;
        Ok(Parent { pid: self.pid, fd })
    }

    /// Makes the watch of the parent; an error if it is not our parent any more.
    fn watch(self, proc: Option<&Proc>) -> Result<Option<OwnerWatch>, OwnerError> {
        let Some(pid) = self.pid else {
            // The first process of a namespace has no parent in it.
            return Ok(None);
        };
        // Checked after the pidfd was opened: if the parent has died in between, we have another parent now.
        let fd = self.fd.filter(|_| getppid() == Some(pid)).ok_or(OwnerError::ParentGone { pid: pid.as_raw_pid() })?;
        Ok(Some(OwnerWatch::new(process_owner(Role::Parent, pid.as_raw_pid(), proc), fd)))
    }
}

/// Finds the owners and opens the descriptors that report their loss. `input` is the server's stdin.
pub fn find(
    wishes: &[OwnerWish],
    parent: Parent,
    input: BorrowedFd<'_>,
    proc: Option<&Proc>,
    signals: InheritedSignals,
) -> Result<Vec<OwnerWatch>, OwnerError> {
    let mut watches = Vec::new();
    let mut parent = Some(parent);
    let default = wishes == OwnerWish::DEFAULT;
    for wish in wishes {
        match wish {
            OwnerWish::Parent => watches.extend(parent.take().map(|parent| parent.watch(proc)).transpose()?.flatten()),
            // `nohup` means that the host further up is not meant as an owner.
            OwnerWish::Ancestor if default && signals.ignores(libc::SIGHUP) => {}
            OwnerWish::Ancestor => watches.extend(proc.map(ancestors).unwrap_or_default()),
            OwnerWish::Stdin => watches.extend(stdin(input)?),
            OwnerWish::Terminal if default => watches.extend(proc.and_then(|proc| terminal_of(proc, signals))),
            OwnerWish::Terminal => watches.push(terminal().ok_or(OwnerError::NoTerminal)?),
            OwnerWish::Pid(pid) => watches.push(process(*pid, proc)?),
        }
    }
    Ok(watches)
}

fn process_owner(role: Role, pid: i32, proc: Option<&Proc>) -> Owner {
    let name = proc.and_then(|proc| proc.stat(pid)).map_or_else(|| "?".to_owned(), |stat| stat.comm);
    Owner::Process { role, pid, name }
}

fn process(pid: i32, proc: Option<&Proc>) -> Result<OwnerWatch, OwnerError> {
    let fd = identity::pidfd(pid).map_err(|errno| match errno {
        rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => OwnerError::NoSuchProcess { pid },
        errno => OwnerError::Watch { what: format!("process {pid}"), cause: Cause::new(errno) },
    })?;
    Ok(OwnerWatch::new(process_owner(Role::Pid, pid, proc), fd))
}

/// The host above the wrappers, if it is not the parent itself. The parent of the npm launcher as well, also if that is a
/// wrapper: without the launcher, it would be our parent.
fn ancestors(proc: &Proc) -> Vec<OwnerWatch> {
    let mut watches = Vec::new();
    let mut below = getppid().and_then(|parent| HeldProcess::open(proc, parent.as_raw_pid()));
    while let Some(held) = below {
        let argv = proc.argv(held.id.pid);
        if !wrapper::is_wrapper(&held.stat.comm, &argv) {
            break;
        }
        // A parent is older than its child. A younger process has taken over a freed number.
        let above = HeldProcess::open(proc, held.stat.ppid);
        below = above.filter(|above| above.id.pid > 1 && above.id.start <= held.id.start);
        let is_owner = |above: &&HeldProcess| {
            wrapper::is_launcher(&argv) || !wrapper::is_wrapper(&above.stat.comm, &proc.argv(above.id.pid))
        };
        if let Some((above, fd)) = below.as_ref().filter(is_owner).and_then(|above| Some((above, above.copy_fd()?))) {
            let owner = Owner::Process { role: Role::Ancestor, pid: above.id.pid, name: above.stat.comm.clone() };
            watches.push(OwnerWatch::new(owner, fd));
        }
    }
    watches
}

/// Stdin, if it has another end: a pipe, a socket or a terminal. A file or /dev/null has no other end to watch.
fn stdin(stdin: BorrowedFd<'_>) -> Result<Option<OwnerWatch>, OwnerError> {
    let Ok(stat) = rustix::fs::fstat(stdin) else { return Ok(None) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let has_other_end = matches!(kind, FileType::Fifo | FileType::Socket) || rustix::termios::isatty(stdin);
    if !has_other_end {
        return Ok(None);
    }
    let fd = rustix::io::fcntl_dupfd_cloexec(stdin, 3)
        .map_err(|errno| OwnerError::Watch { what: "stdin".to_owned(), cause: Cause::new(errno) })?;
    Ok(Some(OwnerWatch::new(Owner::Stdin, fd)))
}

/// The terminal as an owner, if the parent is in the same session and `nohup` does not ignore SIGHUP.
pub(crate) fn terminal_of(proc: &Proc, signals: InheritedSignals) -> Option<OwnerWatch> {
    // Read from /proc and not by getsid: a session outside of our PID namespace is 0, which no pid type can hold.
    let session = |pid: Pid| proc.stat(pid.as_raw_pid()).map(|stat| stat.session);
    let same_session = session(getppid()?)? == session(getpid())?;
    (same_session && !signals.ignores(libc::SIGHUP)).then(terminal).flatten()
}

fn terminal() -> Option<OwnerWatch> {
    let tty = File::options().read(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open("/dev/tty").ok()?;
    Some(OwnerWatch::new(Owner::Terminal, tty.into()))
}

fn lost(owner: &Owner, answer: PollFlags) -> Reason {
    match owner {
        Owner::Process { role, pid, .. } => Reason::OwnerGone { pid: *pid, role: *role },
        Owner::Stdin => Reason::StdinClosed,
        Owner::Terminal => Reason::TerminalClosed,
        // Half closed on purpose, or gone altogether.
        Owner::Handle if !answer.contains(PollFlags::HUP) => Reason::PROGRAM,
        Owner::Handle => Reason::Dropped,
    }
}

/// The message of a program that ends its tree.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StatedEnd {
    /// The reason.
    #[serde(flatten)]
    pub(crate) reason: Reason,
    /// The client that the tree was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<GatewayClient>,
}

/// The message that the program sent before it closed its handle, if any. Keeper and supervisor both read it, so the
/// message stays in the socket.
pub(crate) fn stated_end(watch: &OwnerWatch) -> Option<StatedEnd> {
    matches!(watch.owner, Owner::Handle).then(|| channel::peek(watch.fd.as_fd())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_end_is_read_with_and_without_a_client() {
        let (ours, theirs) = channel::pair().expect("a pair");
        let client =
            GatewayClient { name: Some("\\".repeat(80)), version: Some("\\".repeat(80)), ..GatewayClient::default() };
        let reason = Reason::OwnerGone { pid: 7, role: Role::Client };
        channel::send(ours.as_fd(), &StatedEnd { reason: reason.clone(), client: Some(client.clone()) });
        let watch = OwnerWatch::new(Owner::Handle, theirs);
        for _ in 0..2 {
            let stated = stated_end(&watch).expect("it stays in the socket");
            assert_eq!((stated.reason, stated.client.as_ref()), (reason.clone(), Some(&client)));
        }
        let plain: StatedEnd = serde_json::from_str(r#"{"kind":"idle"}"#).expect("a reason alone");
        assert_eq!((plain.reason, plain.client), (Reason::Idle, None));
    }
}
