//! How long a POST waits for its answer before it becomes a stream.
//!
//! A timer per request would cost a system call each, so there is one for all requests on a pipe: it fires twice in a window,
//! and what has seen it fire twice is late. It runs only while something waits that is not late.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::child::Child;

/// Whether the timer runs.
#[derive(Debug, Default)]
pub(super) struct Window {
    running: Cell<bool>,
}

/// The turns that a request has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns(u8);

impl Turns {
    const LATE: Turns = Turns(2);

    /// The timer fires; whether that made it late.
    pub(super) fn next(&mut self) -> bool {
        let late = self.is_late();
        self.0 = (self.0 + 1).min(Turns::LATE.0);
        !late && self.is_late()
    }

    /// Whether the answer comes no longer in time.
    pub(super) fn is_late(self) -> bool {
        self == Turns::LATE
    }
}

/// What has requests that wait.
pub(super) trait Waiting: 'static {
    fn window(&self) -> &Window;
    fn child(&self) -> &Child;
    /// How long a window is.
    fn length(&self) -> Duration;
    /// The timer fires; whether something is still in time.
    fn turn(&self) -> bool;
}

/// A request begins to wait.
pub(super) fn watch<W: Waiting>(waiting: &Rc<W>) {
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
