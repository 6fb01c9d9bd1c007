//! The events of a running tree that a caller may want to know. Logs, `-v` output and status read this one stream.

use crate::containment::{Containment, Refusal};
use crate::receipt::{Reason, Receipt};

/// A step of the ending ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// leash waits for the server to exit after the end of its stdin.
    Eof,
    /// SIGTERM was sent.
    Term,
    /// The containment kills.
    Kill,
}

/// An event of a tree.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// leash ended a dead run of the past.
    Swept(Box<Receipt>),
    /// The server runs.
    Started {
        /// Its name.
        name: String,
        /// The pid of its first process, if it can be known.
        leader: Option<i32>,
        /// The containment of its tree.
        containment: Containment,
        /// The stronger containments that were refused, with reasons.
        refused: Vec<Refusal>,
    },
    /// The end has reached a step of the ladder.
    Ending {
        /// The reason for the end.
        why: Reason,
        /// The step.
        rung: Rung,
        /// The number of members at that moment.
        members: usize,
    },
    /// A problem that does not stop leash.
    Warning(String),
}
