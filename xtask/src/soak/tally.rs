//! What the clients did, in sessions.

use serde_json::{Value, json};

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Sessions that began.
    pub(crate) opened: u64,
    /// Those whose client was killed.
    pub(crate) crashed: u64,
    /// Those whose client exited without a word.
    pub(crate) exited: u64,
    /// Those that their client ended.
    pub(crate) deleted: u64,
    /// Those that were not used until they were gone, with their client alive.
    pub(crate) expired: u64,
    /// Event streams that began, and those that were cut in the middle.
    pub(crate) streams: u64,
    /// See `streams`.
    pub(crate) cut: u64,
}

impl Tally {
    /// Sessions that were ended in one way or another.
    pub(crate) fn ended(&self) -> u64 {
        self.crashed + self.exited + self.deleted + self.expired
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "opened": self.opened,
            "crashed": self.crashed,
            "exited": self.exited,
            "deleted": self.deleted,
            "expired": self.expired,
            "streams": self.streams,
            "cut": self.cut,
        })
    }
}
