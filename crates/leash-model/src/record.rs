//! One run of one server, as the ledger keeps it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::receipt::{EndedBy, Fate, Holding, How, Reason, Receipt, TreeEnd, VERSION};
use crate::clock;
use crate::containment::{Containment, Refusal};
use crate::identity::Identity;
use crate::owner::Owner;

/// Version of the record's shape.
pub const RECORD_VERSION: u32 = 1;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The server is being started.
    Starting,
    /// It runs.
    Running,
    /// It is being ended.
    Ending,
}

/// A live run and everything needed to end it without the processes that watch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Pids below mean nothing after a reboot.
    pub boot: String,
    /// Nor in another PID namespace: a container may share the runtime directory with its host.
    pub pid_namespace: u64,
    /// This run.
    pub run: String,
    /// The session it belongs to.
    pub session: String,
    /// The server's name.
    pub name: String,
    /// Labels as given.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What was executed.
    pub command: Vec<String>,
    /// What it lives for.
    pub owners: Vec<Owner>,
    /// Where it stands.
    pub phase: Phase,
    /// `leash run` itself.
    pub supervisor: Option<Identity>,
    /// Its keeper.
    pub keeper: Option<Identity>,
    /// The server's first process.
    pub leader: Option<Identity>,
    /// Everybody seen in the tree when it was last looked at.
    pub members: Vec<Identity>,
    /// PID namespaces that members were seen to enter; 0 stands for one that may not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entered: Vec<u64>,
    /// Private memory of the members then.
    pub memory_bytes: u64,
    /// What keeps the tree together, once that is known.
    pub containment: Option<Containment>,
    /// Why nothing better does.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// The tree's cgroup, written before it is made.
    pub leaf: Option<PathBuf>,
    /// Names that are not ended.
    #[serde(default)]
    pub spare: Vec<String>,
    /// Pace of the ladder.
    pub grace_ms: u64,
    /// Whether what a leader leaves behind is let be until the end is asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patient: bool,
    /// When the run began, milliseconds since 1970.
    pub started_ms: u64,
    /// Where its receipt goes.
    pub receipts: PathBuf,
    /// The receipt, from the moment the run is over until it stands in the receipts file and this record is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Receipt>,
}

impl Record {
    /// The receipt of its end.
    pub fn receipt(&self, reason: Reason, ended_by: EndedBy, took_ms: u64, tree: TreeEnd) -> Receipt {
        Receipt {
            version: VERSION,
            session: self.session.clone(),
            run: self.run.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            reason,
            containment: self.containment,
            refused: self.refused.clone(),
            holdings: vec![Holding::Tree(tree)],
            dropped_holdings: 0,
            ended_by,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms,
        }
    }

    /// A tree's end with nothing unusual about it.
    pub fn tree_end(&self, how: How) -> TreeEnd {
        TreeEnd {
            leader: self.leader,
            fate: Fate::Gone,
            how,
            exit: None,
            members: self.members.len(),
            left: Vec::new(),
            spared: Vec::new(),
            memory_bytes: self.memory_bytes,
            ports: Vec::new(),
            locks: Vec::new(),
        }
    }
}
