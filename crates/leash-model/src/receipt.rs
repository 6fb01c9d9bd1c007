//! Receipts: what became of each session. Reading and writing them is `leash-tree`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::client::GatewayClient;
use crate::containment::{Containment, Refusal};
use crate::identity::Identity;
use crate::owner::Role;
use crate::start_failure::StartFailure;

/// The version of the receipt's format; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// The reason why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The host closed the server's stdin, or died, which closes it too.
    StdinClosed,
    /// An owning process is gone.
    OwnerGone {
        /// Its pid.
        pid: i32,
        /// Its role in the session.
        role: Role,
    },
    /// The terminal was closed.
    TerminalClosed,
    /// leash received a signal.
    Signal {
        /// The signal.
        signal: i32,
    },
    /// leash itself was killed; its keeper ended the tree.
    SupervisorKilled,
    /// The keeper was killed; leash ended the tree.
    KeeperKilled,
    /// The keeper no longer answered, and the supervisor took its place.
    KeeperStuck,
    /// The limit on descriptors was lowered so far that leash can't watch the owners any more.
    Starved,
    /// The server's first process ended by itself.
    ServerExited,
    /// A user or a program asked for the end.
    Requested {
        /// The one that asked; absent in receipts of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Requester>,
    },
    /// The program that held the tree released it without ending it, or was killed.
    Dropped,
    /// `--max-age` was reached.
    MaxAge,
    /// The tree used all the memory of a budget, or was the largest tree of several that did so together.
    MemoryBudget {
        /// The budget; older versions know only that of a tree.
        #[serde(default)]
        budget: BudgetScope,
    },
    /// The machine's memory was short, and the tree was idle and might be stopped then.
    MemoryPressure,
    /// leash and keeper were both gone; a later start of leash found the processes that they had left.
    Swept,
    /// The client ended its session with DELETE, as the protocol says.
    ClientDeleted,
    /// The client closed the connection that was its session, or did not wait until the session had begun.
    ClientLeft,
    /// The client no longer answers pings.
    ClientSilent,
    /// No request was in flight for the idle time.
    Idle,
    /// The client's process lives, but has not used the session for long: no request and no connection.
    Abandoned,
    /// The server did not answer `initialize`, or refused it.
    NotInitialized,
    /// The upstream server no longer knows the session.
    UpstreamForgot,
    /// The gateway shuts down.
    Shutdown,
    /// The server was removed from the configuration, or its entry has changed.
    Reconfigured,
    /// Another program had started the server, and no process held it any more.
    Orphan,
    /// A host that no user can reach any more: its terminal was closed, or it was in swap for long.
    StaleHost,
    /// Its lease was not renewed.
    LeaseExpired,
    /// The server could not be started, or one of several, and so none was.
    StartFailed {
        /// The reason; absent if several servers were to be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<StartFailure>>,
    },
}

/// The processes that a budget is for, smallest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// One tree.
    #[default]
    Tree,
    /// All trees of a session that were started with a budget of the session.
    Session,
    /// All trees of the user that were started with a budget for all of leash.
    All,
}

/// The one that asked for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Requester {
    /// `leash end`.
    LeashEnd,
    /// A client of the control API.
    ControlApi,
    /// The program that started it, through the library.
    Program,
}

impl Reason {
    /// The end that `leash end` asked for.
    pub const LEASH_END: Reason = Reason::Requested { by: Some(Requester::LeashEnd) };
    /// The end that a client of the control API asked for.
    pub const CONTROL_API: Reason = Reason::Requested { by: Some(Requester::ControlApi) };
    /// The end that the program asked for that started the session.
    pub const PROGRAM: Reason = Reason::Requested { by: Some(Requester::Program) };

    /// One of each reason for which a client session of a gateway ends.
    pub const OF_CLIENT_SESSIONS: [Reason; 16] = [
        Reason::Abandoned,
        Reason::ClientDeleted,
        Reason::ClientLeft,
        Reason::ClientSilent,
        Reason::Idle,
        Reason::LeaseExpired,
        Reason::MaxAge,
        Reason::MemoryPressure,
        Reason::NotInitialized,
        Reason::OwnerGone { pid: 0, role: Role::Client },
        Reason::Reconfigured,
        Reason::Requested { by: None },
        Reason::ServerExited,
        Reason::Shutdown,
        Reason::StartFailed { why: None },
        Reason::UpstreamForgot,
    ];

    /// True if a gateway decided it, and closes the tree's stdin for it.
    pub fn is_decision(&self) -> bool {
        match self {
            Reason::Abandoned
            | Reason::ClientDeleted
            | Reason::ClientLeft
            | Reason::ClientSilent
            | Reason::Idle
            | Reason::MemoryPressure
            | Reason::NotInitialized
            | Reason::Shutdown
            | Reason::Reconfigured
            | Reason::LeaseExpired
            | Reason::StartFailed { .. }
            | Reason::Requested { .. } => true,
            Reason::OwnerGone { role, .. } => matches!(role, Role::Client | Role::Owner),
            _ => false,
        }
    }

    /// One line of text for people.
    pub fn describe(&self) -> String {
        match self {
            Reason::OwnerGone { pid, role } => format!("{role} {pid} gone"),
            Reason::Signal { signal } => signal_name(*signal),
            other => other.words().1.to_owned(),
        }
    }

    /// The same for the session of a client, which is named if it is the reason: `claude (26910) gone`.
    pub fn describe_for(&self, client: Option<&GatewayClient>) -> String {
        let text = self.describe();
        match (self, client) {
            (Reason::OwnerGone { pid, role: Role::Client }, Some(client)) => format!("{} ({pid}) gone", client.name()),
            (Reason::ClientDeleted | Reason::ClientLeft | Reason::ClientSilent, Some(client)) => {
                text.replacen("client", &client.to_string(), 1)
            }
            _ => text,
        }
    }

    /// One word for a metric's label: the same as in a receipt's JSON.
    pub fn label(&self) -> &'static str {
        self.words().0
    }

    /// The word for programs, and the words for people.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Reason::StdinClosed => ("stdin_closed", "stdin closed"),
            Reason::OwnerGone { .. } => ("owner_gone", "owner gone"),
            Reason::TerminalClosed => ("terminal_closed", "terminal closed"),
            Reason::Signal { .. } => ("signal", "signal"),
            Reason::SupervisorKilled => ("supervisor_killed", "leash was killed"),
            Reason::KeeperKilled => ("keeper_killed", "keeper was killed"),
            Reason::KeeperStuck => ("keeper_stuck", "keeper did not answer"),
            Reason::Starved => ("starved", "limit on descriptors too low"),
            Reason::ServerExited => ("server_exited", "server exited"),
            Reason::Requested { by } => (
                "requested",
                match by {
                    Some(Requester::LeashEnd) => "leash end",
                    Some(Requester::ControlApi) => "ended through the control API",
                    Some(Requester::Program) => "ended by the program that started it",
                    None => "ended on request",
                },
            ),
            Reason::Dropped => ("dropped", "no longer held by the program that started it"),
            Reason::MaxAge => ("max_age", "max age"),
            Reason::MemoryBudget { budget } => (
                "memory_budget",
                match budget {
                    BudgetScope::Tree => "over its memory budget",
                    BudgetScope::Session => "largest tree of a session over its memory budget",
                    BudgetScope::All => "largest tree when all of leash was over its memory budget",
                },
            ),
            Reason::MemoryPressure => ("memory_pressure", "memory was short"),
            Reason::Swept => ("swept", "swept after a crash"),
            Reason::ClientDeleted => ("client_deleted", "client sent DELETE"),
            Reason::ClientLeft => ("client_left", "client disconnected"),
            Reason::ClientSilent => ("client_silent", "client answers no ping"),
            Reason::Idle => ("idle", "idle"),
            Reason::Abandoned => ("abandoned", "not used by its client any more"),
            Reason::NotInitialized => ("not_initialized", "not initialized"),
            Reason::UpstreamForgot => ("upstream_forgot", "upstream forgot it"),
            Reason::Shutdown => ("shutdown", "the gateway stopped"),
            Reason::Reconfigured => ("reconfigured", "reconfigured"),
            Reason::Orphan => ("orphan", "orphan"),
            Reason::StaleHost => ("stale_host", "stale host"),
            Reason::LeaseExpired => ("lease_expired", "lease not renewed"),
            Reason::StartFailed { .. } => ("start_failed", "a server did not start"),
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
    /// It exited by itself, without a request.
    Exited,
    /// It exited after the end of its stdin.
    Eof,
    /// It exited after SIGTERM.
    Term,
    /// It was killed.
    Kill,
}

/// The exit of the server's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It exited with a code.
    Code(i32),
    /// A signal ended it.
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

/// The fate of a holding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is proved to be gone.
    Gone,
    /// It was ended, and leash finds no process of it any more. This is no proof, because nothing contained it. Only
    /// `leash reap` and `leash watch` report this.
    Ended,
    /// It is not proved to be gone: a part of it may still be there.
    Left,
}

/// A process that is left, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOver {
    /// Its pid.
    pub pid: i32,
    /// Its short name.
    pub name: String,
    /// The reason why it could not be ended, or was spared.
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
    /// The step that ended it.
    pub how: How,
    /// The leader's exit, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The most members seen at once.
    pub members: usize,
    /// Processes that are left although leash wanted to end them, or that leash could not check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftOver>,
    /// Processes that are left because `--spare` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared: Vec<LeftOver>,
    /// The most private memory seen in use.
    pub memory_bytes: u64,
    /// Processes of it that the kernel killed for lack of memory, as far as the kernel counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory_kills: u64,
    /// The last lines of its stderr, if it crashed and leash keeps its log. Control characters are escaped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// TCP ports on which it listened; recorded for orphans only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Files that it kept locked; recorded for orphans only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<String>,
}

impl TreeEnd {
    /// The end of a tree that has no receipt. leash does not know it, so it may not report it as gone.
    pub fn unknown(how: How, left: Vec<LeftOver>) -> TreeEnd {
        TreeEnd {
            leader: None,
            fate: Fate::Left,
            how,
            exit: None,
            members: 0,
            left,
            spared: Vec::new(),
            memory_bytes: 0,
            memory_kills: 0,
            stderr: Vec::new(),
            ports: Vec::new(),
            locks: Vec::new(),
        }
    }
}

/// The result of ending an upstream session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeleteHow {
    /// The upstream answered DELETE with success.
    Deleted,
    /// The upstream did not know the session any more.
    Forgotten,
    /// It ended with its connection (HTTP+SSE has no DELETE).
    Closed,
    /// The upstream does not let clients end sessions (405).
    Unsupported,
    /// The upstream did not accept the credentials, or leash does not know them any more.
    Denied,
    /// The upstream gave no final answer to any try.
    Unreachable,
}

impl DeleteHow {
    /// True if the session is gone.
    pub fn is_gone(self) -> bool {
        matches!(self, DeleteHow::Deleted | DeleteHow::Forgotten | DeleteHow::Closed)
    }
}

/// A session at an HTTP server, and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpstreamEnd {
    /// The server's URL, without the query, which may hold a secret.
    pub url: String,
    /// The beginning of the session's id at the server.
    pub id: String,
    /// Gone or left.
    pub fate: Fate,
    /// The answer that ended it.
    pub how: DeleteHow,
    /// The last HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The number of times that DELETE was sent.
    pub tries: u32,
    /// The reason why it is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A tree or an upstream session that a session held, and its end.
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
    /// Its fate.
    pub fn fate(&self) -> &Fate {
        match self {
            Holding::Tree(tree) => &tree.fate,
            Holding::Upstream(upstream) => &upstream.fate,
        }
    }
}

/// The process that wrote a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// The keeper, in the normal case.
    Keeper,
    /// The supervisor, because the keeper was gone.
    Supervisor,
    /// A sweep by a later start of leash.
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
    /// The version of this format.
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
    /// The reason for the end.
    pub reason: Reason,
    /// The client of a session at a gateway; absent for other sessions, and if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<GatewayClient>,
    /// The containment of the tree; unknown if the keeper died before it could report it.
    pub containment: Option<Containment>,
    /// The stronger containments that were refused, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// Everything that the session held, with the end of each.
    pub holdings: Vec<Holding>,
    /// The number of earlier holdings that are not named, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_holdings: u64,
    /// The process that ended it.
    pub ended_by: EndedBy,
    /// The start of the session, milliseconds since 1970.
    pub started_ms: u64,
    /// The end of the session, milliseconds since 1970.
    pub ended_ms: u64,
    /// Milliseconds from the first sign of the end to the proof.
    pub took_ms: u64,
}

impl Receipt {
    /// The reason, in one line for people. It names the client if the client is the reason.
    pub fn why(&self) -> String {
        let why = self.reason.describe_for(self.client.as_ref());
        match self.trees().any(|tree| tree.memory_kills > 0) && self.reason == Reason::ServerExited {
            true => format!("{why}: out of memory"),
            false => why,
        }
    }

    /// True if everything is proved to be gone.
    pub fn all_gone(&self) -> bool {
        self.holdings.iter().all(|holding| *holding.fate() == Fate::Gone)
    }

    /// True if nothing is known to be left: each holding is proved to be gone, or was ended and is not found any more.
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
    fn reasons() -> [Reason; 31] {
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
            Reason::Requested { by: None },
            Reason::LEASH_END,
            Reason::CONTROL_API,
            Reason::PROGRAM,
            Reason::Dropped,
            Reason::MaxAge,
            Reason::MemoryBudget { budget: BudgetScope::All },
            Reason::MemoryPressure,
            Reason::Swept,
            Reason::ClientDeleted,
            Reason::ClientLeft,
            Reason::ClientSilent,
            Reason::Idle,
            Reason::Abandoned,
            Reason::NotInitialized,
            Reason::UpstreamForgot,
            Reason::Shutdown,
            Reason::Reconfigured,
            Reason::Orphan,
            Reason::StaleHost,
            Reason::LeaseExpired,
            Reason::StartFailed { why: None },
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
    fn client_is_named_if_it_is_the_reason() {
        let mut client = GatewayClient { pid: Some(26910), ..GatewayClient::default() };
        client.introduce(Some("claude"), None);
        let check = |reason: Reason, text: &str| assert_eq!(reason.describe_for(Some(&client)), text);
        check(Reason::OwnerGone { pid: 26910, role: Role::Client }, "claude (26910) gone");
        check(Reason::OwnerGone { pid: 7, role: Role::Owner }, "owner 7 gone");
        check(Reason::ClientDeleted, "claude (26910) sent DELETE");
        check(Reason::ClientLeft, "claude (26910) disconnected");
        check(Reason::ClientSilent, "claude (26910) answers no ping");
        check(Reason::Idle, "idle");
        assert_eq!(Reason::ClientDeleted.describe_for(None), "client sent DELETE");
    }

    #[test]
    fn request_of_an_older_version_is_read() {
        let read = |text: &str| serde_json::from_str::<Reason>(text).expect("a reason");
        assert_eq!(read(r#"{"kind":"requested"}"#), Reason::Requested { by: None });
        assert_eq!(read(r#"{"kind":"requested","by":"control_api"}"#), Reason::CONTROL_API);
    }

    #[test]
    fn signals_have_the_names_that_people_know() {
        let names: Vec<String> = [1, 2, 3, 9, 15, 34].map(signal_name).into();
        assert_eq!(names, ["SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM", "signal 34"]);
    }
}
