//! The record of one run of one server in the ledger.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::client::GatewayClient;
use crate::containment::{Containment, Refusal};
use crate::receipt::{EndedBy, Fate, Holding, How, Reason, Receipt, TreeEnd, VERSION};
use crate::{clock, duration, identity::Identity, owner::Owner};

/// The version of the record's format.
pub const RECORD_VERSION: u32 = 1;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The server is being started.
    Starting,
    /// It runs.
    Running,
    /// It is being ended.
    Ending,
}

/// Permission to stop a tree while its owners live, because it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleStop {
    /// The time for which it must be idle, in milliseconds.
    pub after_ms: u64,
    /// The further condition.
    pub when: StopWhen,
}

impl IdleStop {
    /// The permission to stop a tree that is idle for this time when memory is short.
    pub fn under_pressure(after: Duration) -> IdleStop {
        IdleStop { after_ms: duration::as_ms(after), when: StopWhen::MemoryPressure }
    }

    /// The time for which it must be idle.
    pub fn after(&self) -> Duration {
        Duration::from_millis(self.after_ms)
    }

    /// The permission in words: `it may be ended when ...`.
    pub fn describe(&self) -> String {
        let after = duration::exact(self.after());
        match self.when {
            StopWhen::MemoryPressure => format!("memory is short and it has been idle for {after}"),
        }
    }
}

/// The condition under which an idle tree may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopWhen {
    /// The machine's memory is short.
    MemoryPressure,
}

/// A live run and everything needed to end it without the processes that watch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The boot id. The pids below mean nothing after a reboot.
    pub boot: String,
    /// The id of the PID namespace. The pids mean nothing in another one: a container may share the runtime directory
    /// with its host.
    pub pid_namespace: u64,
    /// The id of this run.
    pub run: String,
    /// The session it belongs to.
    pub session: String,
    /// The server's name.
    pub name: String,
    /// Labels as given.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The command line.
    pub command: Vec<String>,
    /// The owners: when one is gone, leash ends the run.
    pub owners: Vec<Owner>,
    /// The phase of the run.
    pub phase: Phase,
    /// The supervisor: `leash run` itself, or the one between a gateway and its keepers.
    pub supervisor: Option<Identity>,
    /// True if the supervisor holds other trees as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The keeper.
    pub keeper: Option<Identity>,
    /// The server's first process.
    pub leader: Option<Identity>,
    /// All members at the last look at the tree.
    pub members: Vec<Identity>,
    /// PID namespaces that members were seen to enter; 0 stands for one that may not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entered: Vec<u64>,
    /// Private memory of the members at that look.
    pub memory_bytes: u64,
    /// The containment, once it is known.
    pub containment: Option<Containment>,
    /// The stronger containments that were refused, with reasons.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// The path of the tree's cgroup, written before the cgroup is made.
    pub leaf: Option<PathBuf>,
    /// Names of processes that leash does not end.
    #[serde(default)]
    pub spare: Vec<String>,
    /// The grace between two steps of the ladder.
    pub grace_ms: u64,
    /// The client for which a gateway runs it, from the beginning of the end on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<GatewayClient>,
    /// True if processes that the leader leaves behind live until an end is requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patient: bool,
    /// Permission to stop it while its owners live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<IdleStop>,
    /// The start of the run, milliseconds since 1970.
    pub started_ms: u64,
    /// The file for its receipt.
    pub receipts: PathBuf,
    /// The receipt, from the end of the run until it is in the receipts file and this record is removed.
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
            client: self.client.clone(),
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

    /// The end of a tree with nothing left and no exit known.
    pub fn tree_end(&self, how: How) -> TreeEnd {
        TreeEnd {
            leader: self.leader,
            fate: Fate::Gone,
            members: self.members.len(),
            memory_bytes: self.memory_bytes,
            ..TreeEnd::unknown(how, Vec::new())
        }
    }
}
