//! Waits for an event, with a deadline. No test sleeps for a guessed time.
#![expect(clippy::disallowed_types, reason = "the one place of the kit that reads the clock")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The timeout for an event that must happen. Far beyond any time that leash needs: on a busy machine, or on emulated
/// processors, a test may be slow, but must not fail because of that.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The polling interval for events that no descriptor signals.
const STEP: Duration = Duration::from_millis(1);

/// A moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// The time that is left; zero after the deadline.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// True if the deadline has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// The time since its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn time(self) -> Duration {
        self.0.elapsed()
    }
}

/// Polls until `look` returns a value. `None` after `limit`.
pub fn within<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    every(STEP, limit, look)
}

/// The same for an expensive `look`: with `pause` between two calls.
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

/// Polls until `look` returns a value.
///
/// # Panics
/// After [`LIMIT`], naming `what` was awaited.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(LIMIT, look) {
        Some(found) => found,
        None => panic!("waited {LIMIT:?} in vain for {what}"),
    }
}

/// Waits until one of `wanted` (or a hang-up, or an error) is reported for `fd`. Returns false after `limit`.
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

/// Waits for `time`: a step of a poll loop, or the delay of a race test. Never used in the hope that something has
/// happened meanwhile.
pub fn step(time: Duration) {
    let timeout = Timespec::try_from(time).expect("a step fits a timespec");
    // An early return because of a signal only makes the step shorter.
    let _ = poll(&mut [], Some(&timeout));
}
