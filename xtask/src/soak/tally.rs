//! Counters of what the clients did, in sessions.

use serde_json::{Value, json};

/// The counters so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Sessions that were opened.
    pub(crate) opened: u64,
    /// Sessions whose client was killed.
    pub(crate) crashed: u64,
    /// Sessions whose client exited without DELETE.
    pub(crate) exited: u64,
    /// Sessions that their client ended.
    pub(crate) deleted: u64,
    /// Sessions that expired, with their client alive.
    pub(crate) expired: u64,
    /// Event streams that were opened.
    pub(crate) streams: u64,
    /// Event streams that were cut in the middle.
    pub(crate) cut: u64,
}

impl Tally {
    /// Sessions that ended in any way.
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
