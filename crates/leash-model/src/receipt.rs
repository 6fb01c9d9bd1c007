//! Receipts: what became of each session. Reading and writing them is `leash-tree`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::containment::{Containment, Refusal};
use crate::identity::Identity;
use crate::owner::Role;

/// Version of the receipt's shape; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The host closed the server's stdin, or died and took it along.
    StdinClosed,
    /// An owning process is gone.
    OwnerGone {
        /// Its pid.
        pid: i32,
        /// What it was to the session.
        role: Role,
    },
    /// The terminal was closed.
    TerminalClosed,
    /// leash was told by a signal.
    Signal {
        /// Which.
        signal: i32,
    },
    /// leash itself was killed; its keeper ended the tree.
    SupervisorKilled,
    /// The keeper was killed; leash ended the tree.
    KeeperKilled,
    /// The keeper no longer answered and was replaced.
    KeeperStuck,
    /// The limit on descriptors was lowered so far that the owners can't be watched any more.
    Starved,
    /// The server's first process ended by itself.
    ServerExited,
    /// `leash end`.
    Requested,
    /// The program that held the tree let go of it without ending it.
    Dropped,
    /// `--max-age` was reached.
    MaxAge,
    /// leash and keeper were both gone; a later start found what they had left.
    Swept,
    /// The client ended its session, as the protocol asks for.
    ClientDeleted,
    /// The connection that was the session is closed, or nobody waited any more for its beginning.
    ClientLeft,
    /// The client no longer answers pings.
    ClientSilent,
    /// Nothing was in flight for the idle time.
    Idle,
    /// The server did not answer `initialize`, or refused it.
    NotInitialized,
    /// The upstream server no longer knows the session.
    UpstreamForgot,
    /// The gateway shuts down.
    Shutdown,
    /// The server was removed from the configuration, or is another one now.
    Reconfigured,
    /// Somebody else had started it, and nobody held it any more.
    Orphan,
    /// A host that nobody could use any more.
    StaleHost,
    /// Its lease was not renewed.
    LeaseExpired,
    /// One of its servers could not be started, so none was.
    StartFailed,
}

impl Reason {
    /// Whether it is the decision of a gateway, which ends the tree's input for it.
    pub fn is_decision(&self) -> bool {
        match self {
            Reason::ClientDeleted
            | Reason::ClientLeft
            | Reason::ClientSilent
            | Reason::Idle
            | Reason::NotInitialized
            | Reason::Shutdown
            | Reason::Reconfigured
            | Reason::LeaseExpired
            | Reason::StartFailed
            | Reason::Requested => true,
            Reason::OwnerGone { role, .. } => matches!(role, Role::Client | Role::Owner),
            _ => false,
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        match self {
            Reason::StdinClosed => "stdin closed".to_owned(),
            Reason::OwnerGone { pid, role } => format!("{role} {pid} gone"),
            Reason::TerminalClosed => "terminal closed".to_owned(),
            Reason::Signal { signal } => signal_name(*signal),
            Reason::SupervisorKilled => "leash was killed".to_owned(),
            Reason::KeeperKilled => "keeper was killed".to_owned(),
            Reason::KeeperStuck => "keeper did not answer".to_owned(),
            Reason::Starved => "limit on descriptors too low".to_owned(),
            Reason::ServerExited => "server exited".to_owned(),
            Reason::Requested => "leash end".to_owned(),
            Reason::Dropped => "handle dropped".to_owned(),
            Reason::MaxAge => "max age".to_owned(),
            Reason::Swept => "swept after a crash".to_owned(),
            Reason::ClientDeleted => "client sent DELETE".to_owned(),
            Reason::ClientLeft => "client disconnected".to_owned(),
            Reason::ClientSilent => "client answers no ping".to_owned(),
            Reason::Idle => "idle".to_owned(),
            Reason::NotInitialized => "not initialized".to_owned(),
            Reason::UpstreamForgot => "upstream forgot it".to_owned(),
            Reason::Shutdown => "shutdown".to_owned(),
            Reason::Reconfigured => "reconfigured".to_owned(),
            Reason::Orphan => "orphan".to_owned(),
            Reason::StaleHost => "stale host".to_owned(),
            Reason::LeaseExpired => "lease not renewed".to_owned(),
            Reason::StartFailed => "a server did not start".to_owned(),
        }
    }
}

impl Reason {
    /// One word for a metric's label: the same as in a receipt's JSON.
    pub fn label(&self) -> &'static str {
        match self {
            Reason::StdinClosed => "stdin_closed",
            Reason::OwnerGone { .. } => "owner_gone",
            Reason::TerminalClosed => "terminal_closed",
            Reason::Signal { .. } => "signal",
            Reason::SupervisorKilled => "supervisor_killed",
            Reason::KeeperKilled => "keeper_killed",
            Reason::KeeperStuck => "keeper_stuck",
            Reason::Starved => "starved",
            Reason::ServerExited => "server_exited",
            Reason::Requested => "requested",
            Reason::Dropped => "dropped",
            Reason::MaxAge => "max_age",
            Reason::Swept => "swept",
            Reason::ClientDeleted => "client_deleted",
            Reason::ClientLeft => "client_left",
            Reason::ClientSilent => "client_silent",
            Reason::Idle => "idle",
            Reason::NotInitialized => "not_initialized",
            Reason::UpstreamForgot => "upstream_forgot",
            Reason::Shutdown => "shutdown",
            Reason::Reconfigured => "reconfigured",
            Reason::Orphan => "orphan",
            Reason::StaleHost => "stale_host",
            Reason::LeaseExpired => "lease_expired",
            Reason::StartFailed => "start_failed",
        }
    }
}

/// The name of a signal leash deals with. These numbers are the same on every Unix.
pub fn signal_name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        3 => "SIGQUIT".to_owned(),
        9 => "SIGKILL".to_owned(),
        15 => "SIGTERM".to_owned(),
        _ => format!("signal {signal}"),
    }
}

/// The step that ended a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It left by itself; nobody had asked.
    Exited,
    /// It left after the end of its stdin.
    Eof,
    /// It left after SIGTERM.
    Term,
    /// It was killed.
    Kill,
}

/// How the server's first process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// The shell's convention: the code itself, or 128 + signal.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// What became of a holding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// Proved to be gone.
    Gone,
    /// It was ended and no process of it is found any more. Nothing contained it, so this is no proof: only `leash reap` and
    /// `leash watch` say so.
    Ended,
    /// Not proved: something may still be there.
    Left,
}

/// A process that is still there, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOver {
    /// Its pid.
    pub pid: i32,
    /// Its short name.
    pub name: String,
    /// Why it could not be ended, or why it was not meant to be.
    pub why: String,
}

/// A process tree and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeEnd {
    /// The server's first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Identity>,
    /// Gone or left.
    pub fate: Fate,
    /// By which step.
    pub how: How,
    /// How the leader ended, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The most members seen at once.
    pub members: usize,
    /// What is still there against our will, or against our knowledge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftOver>,
    /// What is still there because `--spare` named it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared: Vec<LeftOver>,
    /// The most private memory that was seen in use.
    pub memory_bytes: u64,
    /// TCP ports on which it listened; looked at for orphans only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Files that it kept locked; looked at for orphans only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<String>,
}

/// How the end of an upstream session went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeleteHow {
    /// DELETE was answered with success.
    Deleted,
    /// The upstream did not know it any more.
    Forgotten,
    /// It was over with its connection (HTTP+SSE has no DELETE).
    Closed,
    /// The upstream does not let clients end sessions (405).
    Unsupported,
    /// The credentials were not accepted, or are not known any more.
    Denied,
    /// No final answer within all tries.
    Unreachable,
}

/// A session at an HTTP server, and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpstreamEnd {
    /// The server, without the query: that may hold a secret.
    pub url: String,
    /// The beginning of the session's id there.
    pub id: String,
    /// Gone or left.
    pub fate: Fate,
    /// By which answer.
    pub how: DeleteHow,
    /// The last HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How often DELETE was sent.
    pub tries: u32,
    /// Why it is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A thing that a session held, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Holding {
    /// A process tree.
    Tree(TreeEnd),
    /// A session at an HTTP server.
    Upstream(UpstreamEnd),
}

impl Holding {
    /// What became of it.
    pub fn fate(&self) -> &Fate {
        match self {
            Holding::Tree(tree) => &tree.fate,
            Holding::Upstream(upstream) => &upstream.fate,
        }
    }
}

/// Who wrote a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// The keeper, as planned.
    Keeper,
    /// The supervisor, because the keeper was gone.
    Supervisor,
    /// A later start of leash.
    Sweep,
    /// The gateway, or `leash connect`.
    Gateway,
    /// `leash reap` or `leash watch`.
    Reap,
}

/// The end of one session on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// [`VERSION`].
    pub version: u32,
    /// The session's id.
    pub session: String,
    /// The id of this run; several runs may share a session.
    pub run: String,
    /// The server's name.
    pub name: String,
    /// Labels as given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why it ended.
    pub reason: Reason,
    /// What kept the tree together; not known when the keeper died before it could say so.
    pub containment: Option<Containment>,
    /// Why nothing better did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// What the session held, and what became of each.
    pub holdings: Vec<Holding>,
    /// Holdings that came before them and are not named, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_holdings: u64,
    /// Who saw to it.
    pub ended_by: EndedBy,
    /// When the session began, milliseconds since 1970.
    pub started_ms: u64,
    /// When it was over.
    pub ended_ms: u64,
    /// From the first sign of the end to the proof.
    pub took_ms: u64,
}

impl Receipt {
    /// Whether everything is proved to be gone.
    pub fn all_gone(&self) -> bool {
        self.holdings.iter().all(|holding| *holding.fate() == Fate::Gone)
    }

    /// Whether nothing of it is known to be there: each holding is proved to be gone, or was ended and is not found any more.
    pub fn nothing_left(&self) -> bool {
        self.holdings.iter().all(|holding| *holding.fate() != Fate::Left)
    }

    /// The process trees among the holdings.
    pub fn trees(&self) -> impl Iterator<Item = &TreeEnd> {
        self.holdings.iter().filter_map(|holding| match holding {
            Holding::Tree(tree) => Some(tree),
            Holding::Upstream(_) => None,
        })
    }

    /// The upstream sessions among the holdings.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamEnd> {
        self.holdings.iter().filter_map(|holding| match holding {
            Holding::Upstream(upstream) => Some(upstream),
            Holding::Tree(_) => None,
        })
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// One of each.
    fn reasons() -> [Reason; 25] {
        [
            Reason::StdinClosed,
            Reason::OwnerGone { pid: 7, role: Role::Parent },
            Reason::TerminalClosed,
            Reason::Signal { signal: 15 },
            Reason::SupervisorKilled,
            Reason::KeeperKilled,
            Reason::KeeperStuck,
            Reason::Starved,
            Reason::ServerExited,
            Reason::Requested,
            Reason::Dropped,
            Reason::MaxAge,
            Reason::Swept,
            Reason::ClientDeleted,
            Reason::ClientLeft,
            Reason::ClientSilent,
            Reason::Idle,
            Reason::NotInitialized,
            Reason::UpstreamForgot,
            Reason::Shutdown,
            Reason::Reconfigured,
            Reason::Orphan,
            Reason::StaleHost,
            Reason::LeaseExpired,
            Reason::StartFailed,
        ]
    }

    #[test]
    fn a_metric_calls_a_reason_what_its_receipt_calls_it() {
        for reason in reasons() {
            assert_eq!(serde_json::to_value(&reason).unwrap()["kind"], reason.label());
        }
    }

    #[test]
    fn people_can_tell_reasons_apart() {
        let lines: HashSet<String> = reasons().iter().map(Reason::describe).collect();
        assert_eq!(lines.len(), reasons().len(), "{lines:?}");
        assert!(lines.contains("parent 7 gone") && lines.contains("SIGTERM"), "{lines:?}");
    }

    #[test]
    fn signals_have_the_names_that_people_know() {
        let names: Vec<String> = [1, 2, 3, 9, 15, 34].map(signal_name).into();
        assert_eq!(names, ["SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM", "signal 34"]);
    }
}
