//! The waker of one waiting task.

use std::task::Waker;

/// Holds the waker of at most one waiting task.
#[derive(Debug, Default)]
pub(super) struct WaitingTask(Option<Waker>);

impl WaitingTask {
    /// Stores the waker of the task that waits; it replaces an earlier one.
    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.0 {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Wakes the waiting task, if there is one.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}
