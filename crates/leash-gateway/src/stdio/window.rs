//! The time that a POST waits for its answer before the response becomes a stream.
//!
//! A timer per request would cost a system call each, so all requests on a pipe share one. It fires twice per window,
//! and a request that has seen it fire twice is late. It runs only while a request waits that is not late.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::child::ServerProcess;

/// The state of the shared timer.
#[derive(Debug, Default)]
pub(super) struct Window {
    running: Cell<bool>,
}

/// The number of times that the timer has fired for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimerTurns(u8);

impl TimerTurns {
    const LATE: TimerTurns = TimerTurns(2);

    /// Counts a firing of the timer; returns true if that made the request late.
    pub(super) fn next(&mut self) -> bool {
        let late = self.is_late();
        self.0 = (self.0 + 1).min(TimerTurns::LATE.0);
        !late && self.is_late()
    }

    /// True if the window has passed.
    pub(super) fn is_late(self) -> bool {
        self == TimerTurns::LATE
    }
}

/// A pipe with waiting requests.
pub(super) trait WindowedPipe: 'static {
    fn window(&self) -> &Window;
    fn child(&self) -> &ServerProcess;
    /// The length of a window.
    fn length(&self) -> Duration;
    /// Counts a firing of the timer for all requests; returns true if one of them is not late.
    fn turn(&self) -> bool;
}

/// Starts the timer, if it does not run, because a request begins to wait.
pub(super) fn watch<W: WindowedPipe>(waiting: &Rc<W>) {
    if waiting.window().running.replace(true) {
        return;
    }
    let waiting = Rc::clone(waiting);
    waiting.child().tasks.clone().spawn_local(async move {
        loop {
            tokio::select! {
                () = sleep_until(Instant::now() + waiting.length() / 2) => {}
                () = waiting.child().gone() => break,
            }
            if !waiting.turn() {
                break;
            }
        }
        waiting.window().running.set(false);
    });
}
