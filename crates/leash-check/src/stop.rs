//! How a check is stopped before its time: by a signal, and without leaving anything behind.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::CheckError;
use leash_tree::platform::linux;
use leash_tree::tree::supervisor;
use leash_tree::tree::supervisor::FirstLook;
use leash_tree::tree::warden;

/// Whether somebody wants a check to end now. Every wait of a check is also a wait for this.
#[derive(Debug)]
pub struct Stop {
    signals: Option<OwnedFd>,
    /// What came so far, in its order.
    seen: RefCell<Vec<i32>>,
}

impl Stop {
    /// Nobody wants it.
    pub fn never() -> Stop {
        Stop { signals: None, seen: RefCell::default() }
    }

    /// The signals that ask a program to leave. They are taken from this thread, and those it starts, for good: who was told to
    /// stop has something to put away first. What was ignored when the program began stays ignored.
    pub fn by_signal(first: FirstLook) -> io::Result<Stop> {
        let (_, inherited) = first.into_parts();
        let mut wanted = supervisor::listened(inherited);
        // Those two are about servers.
        wanted.retain(|signal| !matches!(*signal, libc::SIGCHLD | warden::END_SIGNAL));
        Ok(Stop { signals: Some(linux::listen(&wanted)?), seen: RefCell::default() })
    }

    /// The first signal that came.
    pub fn asked(&self) -> Option<i32> {
        self.look();
        self.seen.borrow().first().copied()
    }

    /// An error, if it is wanted.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        self.asked().map_or(Ok(()), |signal| Err(CheckError::Stopped { signal }))
    }

    /// What becomes readable when a signal has come.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.signals.as_ref().map(AsFd::as_fd)
    }

    /// Waits until it was asked for so many times.
    pub(super) async fn wait(&self, times: usize) {
        let asked = || {
            self.look();
            self.seen.borrow().len() >= times
        };
        let copy = self.signals.as_ref().and_then(|fd| fd.try_clone().ok());
        let Some(Ok(signals)) = copy.map(linux::readable) else { return std::future::pending().await };
        while !asked() {
            if let Ok(mut ready) = signals.readable().await {
                ready.clear_ready();
            }
        }
    }

    fn look(&self) {
        while let Some(received) = self.as_fd().and_then(linux::receive) {
            self.seen.borrow_mut().push(received.signal);
        }
    }
}
