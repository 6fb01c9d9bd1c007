//! The program's side of a supervisor process: it starts the process, and asks it for trees.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::Signal;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use super::control::fds;
use super::failure::failed;
use super::handle::Tree;
use super::spec::Spec;
use crate::places::Places;
use crate::platform::channel;
use crate::platform::command::{self, Launch};
use crate::platform::identity;
use crate::platform::proc::Proc;
use leash_model::start_failure::StartFailure;

/// `argv[0]` of a supervisor that a program started.
pub(crate) const SUPERVISOR: &str = "mcp-supervisor";

/// The step that failed if there is no supervisor.
pub(super) const NO_SUPERVISOR: &str = "cannot start a supervisor";

/// A supervisor process that this program has started.
#[derive(Debug)]
pub(super) struct SupervisorHandle {
    child: Option<Child>,
    pid: i32,
    pidfd: OwnedFd,
    /// A copy of the pidfd for the program, until it takes it.
    watch: Mutex<Option<OwnedFd>>,
    requests: OwnedFd,
    /// The number of variables that it did not inherit.
    withheld: usize,
}

impl SupervisorHandle {
    /// Starts the process.
    pub(super) fn launch(places: &Places) -> Result<SupervisorHandle, StartFailure> {
        let (requests, theirs) = channel::pair().map_err(|errno| failed(NO_SUPERVISOR, errno))?;
        let launch = Launch {
            program: &places.program,
            role: SUPERVISOR,
            arguments: &[],
            fds: vec![(theirs, fds::CONTROL)],
            piped: false,
        };
        let withheld = command::withheld_names().len();
        let child = command::launch(launch).map_err(|error| failed(NO_SUPERVISOR, error))?;
        let pid = child.id() as i32;
        // We have not waited for it, so no other process has its number. Without this descriptor it exits at once, because
        // its requests are closed.
        let pidfd = identity::pidfd(pid).map_err(|errno| failed(NO_SUPERVISOR, errno))?;
        let watch = Mutex::new(pidfd.try_clone().ok());
        Ok(SupervisorHandle { child: Some(child), pid, pidfd, watch, requests, withheld })
    }

    /// Its number. No other process can have it: we do not wait for it before this handle is dropped.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Asks it for a tree. `is_last`: it exits when its trees are over.
    pub(super) fn start(&self, start: &StartRequest, is_last: bool) -> io::Result<()> {
        // Any process of this user can stop it, and no tree can start then.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::CONT);
        let StartRequest { handle, orders, stdin, stdout, stderr } = start;
        let descriptors = [handle, orders, stdin, stdout, stderr].map(|fd| fd.as_fd());
        self.ask(&SupervisorRequest::Start { is_last }, &descriptors)
    }

    /// Ends the grace of a tree whose end was requested.
    pub(super) fn hurry(&self, run: &str) {
        // If it is gone, the keeper has begun to end the tree without grace.
        let _ = self.ask(&SupervisorRequest::Hurry { run: run.to_owned() }, &[]);
    }

    fn ask(&self, request: &SupervisorRequest, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(request)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        rustix::net::sendmsg(&self.requests, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// True if it may start trees: since it was started, no further variable became a secret. Its keepers inherit its
    /// environment, and a server can read that of its keeper.
    fn is_current(&self) -> bool {
        !self.is_gone() && self.withheld == command::withheld_names().len()
    }

    /// True if it is gone, or will take no more requests.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.requests, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&at_once)).is_ok() && !fds[0].revents().is_empty()
    }

    /// Waits until it has exited, so that it leaves no zombie.
    pub(super) fn wait(mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = rustix::net::shutdown(&self.requests, rustix::net::Shutdown::Both);
            let _ = child.wait();
        }
    }
}

impl Drop for SupervisorHandle {
    /// Without the socket for requests, the supervisor exits when its trees are over. A thread reaps it, because a child
    /// that its parent does not wait for stays a zombie.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Closed now and not after this function: the thread below waits for the supervisor, which must notice the
        // close.
        let _ = rustix::net::shutdown(&self.requests, rustix::net::Shutdown::Both);
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let reaper = std::thread::Builder::new().name("leash-reaper".to_owned());
        let _ = reaper.spawn(move || child.wait());
    }
}

/// A message from the program to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SupervisorRequest {
    /// Start a tree. The descriptors of a [`StartRequest`] come with it.
    Start {
        /// No other tree follows.
        is_last: bool,
    },
    /// End the grace of a tree.
    Hurry {
        /// Its run.
        run: String,
    },
}

/// The descriptors of a start.
#[derive(Debug)]
pub(super) struct StartRequest {
    /// The supervisor's end of the socket that belongs to the handle of the tree.
    pub(super) handle: OwnedFd,
    /// A memfd with the specification and the places.
    pub(super) orders: OwnedFd,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Receives the next request, with the descriptors of a start; `None` if none is waiting, an error if none will come.
pub(super) fn receive(requests: BorrowedFd<'_>) -> io::Result<Option<(SupervisorRequest, Option<StartRequest>)>> {
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(requests, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        received => received?,
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<OwnedFd>>()),
        _ => None,
    });
    let start = sent.next().and_then(|descriptors| {
        let [handle, orders, stdin, stdout, stderr] = descriptors.try_into().ok()?;
        Some(StartRequest { handle, orders, stdin, stdout, stderr })
    });
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, start)))
}

/// One supervisor for all trees of a program. It is started with the first tree, and again if it was killed: the trees that
/// it had end then. After a further variable became a secret, new trees get a new one, and the old one keeps its trees.
#[derive(Debug, Default)]
pub struct SharedSupervisor {
    current: Mutex<Option<Arc<SupervisorHandle>>>,
}

impl SharedSupervisor {
    /// The same as [`Tree::start_speaking_to`], but in the shared supervisor.
    pub fn start(&self, spec: Spec, places: &Places, stderr: OwnedFd) -> Result<Tree, StartFailure> {
        // Processes on a spare list outlive their tree. Among the children of a supervisor that goes on, they would look
        // like processes of a tree whose keeper is dead. Without our own /proc a supervisor can't tell its children apart.
        if !spec.spare.is_empty() || Proc::own().is_err() {
            return Tree::start_speaking_to(spec, places, stderr);
        }
        Tree::start_in(|| self.get(places), spec, places, Some(stderr), false)
    }

    /// A descriptor that becomes readable when the supervisor has exited, to call [`SharedSupervisor::reap`] then. `None` if
    /// it was taken before, or if there is no supervisor.
    pub fn take_watch(&self) -> Option<OwnedFd> {
        self.current().as_ref().and_then(|handle| handle.watch.lock().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Reaps a supervisor that has exited: when it has had no tree for a while, it is not needed.
    pub fn reap(&self) {
        let gone = self.current().take_if(|handle| handle.is_gone());
        // Outside of the lock. The last tree that used it may still have a reference, and reaps it then.
        drop(gone);
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<SupervisorHandle>>> {
        // The value is valid even if a thread panicked while it held the lock.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, places: &Places) -> Result<Arc<SupervisorHandle>, StartFailure> {
        let mut current = self.current();
        if let Some(handle) = current.as_ref().filter(|handle| handle.is_current()) {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(SupervisorHandle::launch(places)?);
        *current = Some(Arc::clone(&handle));
        Ok(handle)
    }
}
