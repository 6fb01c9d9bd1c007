//! Stops a check early on a signal, without leaving processes or sessions behind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{cell::RefCell, io};

use super::CheckError;
use leash_tree::tree::first_look::{FirstLook, listened};
use leash_tree::{platform::linux, tree::driver};

/// The request to stop a check. Every wait of a check also waits for this.
#[derive(Debug)]
pub struct StopSignals {
    signals: Option<OwnedFd>,
    /// The signals received so far, in order.
    seen: RefCell<Vec<i32>>,
}

impl StopSignals {
    /// A value that never requests a stop.
    pub fn never() -> StopSignals {
        StopSignals { signals: None, seen: RefCell::default() }
    }

    /// Receives the signals that ask a program to exit. They stay blocked in this thread and in threads that it
    /// starts, because a stopped check must clean up first. A signal that was ignored when the program started stays
    /// ignored.
    pub fn by_signal(first: FirstLook) -> io::Result<StopSignals> {
        let (_, inherited) = first.into_parts();
        let mut wanted = listened(inherited);
        // These two signals concern servers.
        wanted.retain(|signal| !matches!(*signal, libc::SIGCHLD | driver::END_SIGNAL));
        Ok(StopSignals { signals: Some(linux::listen(&wanted)?), seen: RefCell::default() })
    }

    /// The first signal that was received.
    pub fn asked(&self) -> Option<i32> {
        self.look();
        self.seen.borrow().first().copied()
    }

    /// Returns an error if a signal was received.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        self.asked().map_or(Ok(()), |signal| Err(CheckError::Stopped { signal }))
    }

    /// A descriptor that becomes readable when a signal arrives.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.signals.as_ref().map(AsFd::as_fd)
    }

    /// Waits until this many signals were received.
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
