//! Every fact a caller may want to hear of while a tree runs; logs, `-v` output and status read this one stream.

use crate::containment::{Containment, Refusal};
use crate::receipt::{Reason, Receipt};

/// A rung of the ending ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// Waiting for the server to leave after the end of its stdin.
    Eof,
    /// SIGTERM was sent.
    Term,
    /// The containment kills.
    Kill,
}

/// Something happened.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A dead run of the past was ended.
    Swept(Receipt),
    /// The server runs.
    Started {
        /// Its name.
        name: String,
        /// The pid of its first process, where it can be known.
        leader: Option<i32>,
        /// What keeps its tree together.
        containment: Containment,
        /// Why nothing better does.
        refused: Vec<Refusal>,
    },
    /// The end has reached a rung.
    Ending {
        /// Why it ends.
        why: Reason,
        /// The rung.
        rung: Rung,
        /// Members at that moment.
        members: usize,
    },
    /// Something is not as it should be, and leash goes on.
    Warning(String),
}
