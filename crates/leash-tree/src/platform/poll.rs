//! Waiting for descriptors, also when the limit on descriptors is lower than their number. Then poll(2) fails with
//! EINVAL, and every process of the same user can lower our limit.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;

use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The answers are in the descriptors' `revents`.
    Clear,
    /// We may poll no descriptor, so we know nothing about any of them.
    Blind,
}

/// The descriptors that a loop waits for, each with the name of its source.
#[derive(Debug)]
pub struct PollSet<'fd, S> {
    sources: Vec<S>,
    fds: Vec<PollFd<'fd>>,
}

impl<'fd, S> PollSet<'fd, S> {
    /// Adds a source. It is ready when one of these events happens, or when the other end is gone.
    pub fn add(&mut self, source: S, fd: BorrowedFd<'fd>, events: PollFlags) {
        self.sources.push(source);
        self.fds.push(PollFd::from_borrowed_fd(fd, events));
    }

    /// Waits until a source is ready or the time is over. Returns the ready sources with their answers, in the order in
    /// which they were added. `None` if the kernel lets us poll no descriptor.
    pub fn wait(mut self, timeout: Option<&Timespec>) -> Option<Vec<(S, PollFlags)>> {
        match poll(&mut self.fds, timeout) {
            PollOutcome::Blind => None,
            PollOutcome::Clear => {
                let answers = self.fds.iter().map(PollFd::revents);
                Some(self.sources.into_iter().zip(answers).filter(|(_, answer)| !answer.is_empty()).collect())
            }
        }
    }
}

impl<S> Default for PollSet<'_, S> {
    fn default() -> Self {
        PollSet { sources: Vec::new(), fds: Vec::new() }
    }
}

/// Waits until a descriptor is ready, at most for `timeout`. It may return earlier with no descriptor ready.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> PollOutcome {
    if rustix::event::poll(fds, timeout) != Err(Errno::INVAL) {
        return PollOutcome::Clear;
    }
    raise_limit();
    let most =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let look = |piece: &mut [PollFd<'_>]| rustix::event::poll(piece, Some(&at_once)).is_ok_and(|ready| ready > 0);
    // Polls every piece, also after one that has a ready descriptor.
    let has_news = fds.chunks_mut(most.max(1)).map(look).fold(false, |any, one| any | one);
    if !has_news {
        let now = Moment::now();
        let pause = timeout_until(now + limits::STARVED_LOOK, now);
        let pause = timeout.map_or(pause, |timeout| pause.min(*timeout));
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    if most == 0 { PollOutcome::Blind } else { PollOutcome::Clear }
}

/// Sets the limit on descriptors to the highest value that we may set.
/// Waits for this time, or until a signal comes.
pub fn pause(span: Duration) {
    let now = Moment::now();
    let _ = rustix::event::poll(&mut [], Some(&timeout_until(now + span, now)));
}

fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
