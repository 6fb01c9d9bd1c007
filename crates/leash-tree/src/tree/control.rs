//! The messages between supervisor and keeper, and the orders that the keeper gets at its start.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contain::caps::Caps;
use crate::contain::slice::SharedBudgets;
use crate::contain::unit::UserBus;
use leash_model::containment::{Containment, ContainmentWish, Refusal};
use leash_model::event::Rung;
use leash_model::receipt::{Reason, Receipt};
use leash_model::record::Record;
use leash_model::start_failure::StartFailure;

/// The numbers of the descriptors that a keeper or a supervisor inherits.
pub(crate) mod fds {
    /// The control socket.
    pub(crate) const CONTROL: i32 = 3;
    /// The ledger's lock.
    pub(crate) const LOCK: i32 = 4;
    /// A pidfd of the supervisor.
    pub(crate) const SUPERVISOR: i32 = 5;
    /// The first of the owners' descriptors; the others follow, and then the two of a copy of stderr.
    pub(crate) const OWNERS: i32 = 6;
}

/// Everything a keeper needs to know.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) record: Record,
    pub(crate) wish: ContainmentWish,
    pub(crate) caps: Caps,
    pub(crate) budgets: SharedBudgets,
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) ignored_signals: u64,
    /// Changes to the environment, for the server only.
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) bus: UserBus,
    pub(crate) pid_one: bool,
    /// True if the keeper copies the server's stderr.
    pub(crate) copies_stderr: bool,
    /// The limit on descriptors that the server inherits, if the supervisor has changed its own.
    pub(crate) most_files: Option<u64>,
}

/// The program to run.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) path: OsString,
    pub(crate) cwd: Option<OsString>,
    pub(crate) argv: Vec<OsString>,
}

/// A message from the supervisor to the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// End the tree.
    End(Reason),
    /// The keeper is ending the tree and takes the next step now.
    Nudge,
    /// No more grace.
    Hurry,
}

/// A message from the keeper to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeeperReport {
    /// The server runs. The rest of its record is in the ledger.
    Started { leader: Option<i32>, containment: Containment, refused: Vec<Refusal> },
    /// The server does not run.
    Failed(StartFailure),
    /// The end has reached a step of the ladder.
    Ending { why: Reason, rung: Rung, members: usize },
    /// Members were seen to enter these PID namespaces. Told as soon as it is seen: the server can change the record.
    Entered(Vec<u64>),
    /// A warning for the user.
    Warning(String),
    /// The tree is over. The receipt names any processes that are left.
    Over(Box<Receipt>),
}
