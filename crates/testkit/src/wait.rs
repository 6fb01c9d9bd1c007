//! Waiting for an event, with a deadline. No test sleeps for a time that was guessed.
#![expect(clippy::disallowed_types, reason = "the one place of the kit that reads the clock")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long to wait for what must happen. Far beyond any time that leash needs: on a busy machine a test may be slow,
/// but must not fail for that.
pub const LIMIT: Duration = Duration::from_secs(40);

/// What is not signalled by a descriptor is looked at this often.
const STEP: Duration = Duration::from_millis(1);

/// A moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// What is left; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// True if it has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// What has passed since its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long ago it began.
    pub fn time(self) -> Duration {
        self.0.elapsed()
    }
}

/// Looks until `look` finds something. `None` after `limit`.
pub fn within<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    every(STEP, limit, look)
}

/// The same for what is expensive to look at: with `pause` between two looks.
pub fn every<T>(pause: Duration, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if deadline.is_over() {
            return None;
        }
        step(pause);
    }
}

/// Looks until `look` finds something.
///
/// # Panics
/// After [`LIMIT`], naming `what` was awaited.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(LIMIT, look) {
        Some(found) => found,
        None => panic!("waited {LIMIT:?} in vain for {what}"),
    }
}

/// Waits until one of `wanted` (or a hang-up, or an error) is seen at `fd`. False after `limit`.
pub fn ready(fd: &impl AsFd, wanted: PollFlags, limit: Duration) -> bool {
    let deadline = Deadline::after(limit);
    loop {
        let timeout = Timespec::try_from(deadline.left()).expect("a limit fits a timespec");
        let mut fds = [PollFd::new(fd, wanted)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
    }
}

/// Lets `time` pass: a step of a poll loop, or the delay that a race is tried with. Never used to hope that something has happened.
pub fn step(time: Duration) {
    let timeout = Timespec::try_from(time).expect("a step fits a timespec");
    // An early return because of a signal only makes the step shorter.
    let _ = poll(&mut [], Some(&timeout));
}
