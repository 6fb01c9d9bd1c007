//! Whoever waits for something; at most one.

use std::task::Waker;

/// A place for one who waits.
#[derive(Debug, Default)]
pub(super) struct Sleeper(Option<Waker>);

impl Sleeper {
    /// This one waits from now on, and nobody else.
    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.0 {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Something has happened.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}
