//! The messages between supervisor and keeper, and the orders that the keeper gets at its start.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contain::caps::Caps;
use crate::contain::slice::SharedBudgets;
use crate::contain::unit::UserBus;
use crate::platform::channel::memfd;
use leash_model::containment::{Containment, ContainmentWish, Refusal};
use leash_model::event::Rung;
use leash_model::receipt::{Reason, Receipt};
use leash_model::record::Record;
use leash_model::start_failure::StartFailure;

/// The numbers of the descriptors that a keeper inherits.
pub(crate) mod fds {
    /// The control socket.
    pub(crate) const CONTROL: i32 = 3;
    /// The orders, a memfd.
    pub(crate) const ORDERS: i32 = 4;
    /// The ledger's lock.
    pub(crate) const LOCK: i32 = 5;
    /// A pidfd of the supervisor.
    pub(crate) const SUPERVISOR: i32 = 6;
    /// The first of the owners' descriptors; the others follow, and then the two of a copy of stderr.
    pub(crate) const OWNERS: i32 = 7;
}

/// Everything a keeper needs to know.
#[derive(Debug, Serialize, Deserialize)]
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
}

/// The program to run, as bytes: arguments need not be valid UTF-8.
#[derive(Debug, Default, PartialEq, Eq)]
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

/// Writes orders and command line into a memfd. Arguments may be megabytes long, and the server's arguments must not
/// appear in the keeper's own command line.
pub(crate) fn write_orders(orders: &Orders, command: &CommandLine) -> std::io::Result<OwnedFd> {
    let json = serde_json::to_vec(orders)?;
    let mut blob = Vec::with_capacity(json.len() + 64);
    blob.extend((json.len() as u64).to_le_bytes());
    blob.extend(json);
    let cwd = command.cwd.clone().unwrap_or_default();
    for text in [&command.path, &cwd].into_iter().chain(&command.argv) {
        blob.extend(text.as_bytes());
        blob.push(0);
    }
    memfd(&blob)
}

/// Reads orders that [`write_orders`] wrote.
pub(crate) fn read_orders(fd: OwnedFd) -> Option<(Orders, CommandLine)> {
    let mut blob = Vec::new();
    std::fs::File::from(fd).read_to_end(&mut blob).ok()?;
    let (length, rest) = blob.split_at_checked(8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (json, strings) = rest.split_at_checked(length)?;
    let orders = serde_json::from_slice(json).ok()?;
    let mut strings =
        strings.strip_suffix(&[0])?.split(|byte| *byte == 0).map(|bytes| OsString::from_vec(bytes.to_vec()));
    let path = strings.next()?;
    let cwd = strings.next().filter(|cwd| !cwd.is_empty());
    Some((orders, CommandLine { path, cwd, argv: strings.collect() }))
}
