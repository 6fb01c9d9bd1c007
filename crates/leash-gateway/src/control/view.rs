//! The types that the control API shows. `docs/reference/openapi.json` is made from them and their doc comments.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use leash_model::containment::Containment;
use leash_model::receipt::Receipt;

/// A session, as it is now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Session")]
pub(super) struct SessionView {
    /// Its id. Other users can see it, in `ps` for instance; they cannot see the URLs of its servers.
    pub(super) id: String,
    /// As given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Its state.
    pub(super) state: StateView,
    /// Its owner: the session ends when its owner is gone.
    pub(super) owner: OwnerView,
    /// As given.
    pub(super) labels: BTreeMap<String, String>,
    /// The time at which it began, milliseconds since 1970.
    pub(super) started_at_ms: u64,
    /// The time that it lives without being renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ttl_ms: Option<u64>,
    /// The time at which it ends if it is not renewed, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease_until_ms: Option<u64>,
    /// The time that it lives without being used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) idle_ms: Option<u64>,
    /// The time that it lives at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_age_ms: Option<u64>,
    /// The time at which it ends if it is neither used nor renewed, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline_ms: Option<u64>,
    /// The reason for which it would end then: `lease_expired`, `idle` or `max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline_reason: Option<String>,
    /// The time since it was last used.
    pub(super) idle_for_ms: u64,
    /// Its servers, in the order of their names.
    pub(super) servers: Vec<ServerView>,
    /// Its receipt; only when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Receipt>,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "State")]
pub(super) enum StateView {
    /// Its servers are being started.
    Starting,
    /// All of them run.
    Live,
    /// Its processes and its sessions at other servers are being ended.
    Ending,
    /// Nothing is left of it, or its receipt names what is left.
    Ended,
}

/// The owner of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[schemars(rename = "Owner")]
pub(super) enum OwnerView {
    /// A process: when it is gone, the session ends.
    Pid {
        /// Its number, as the daemon sees it.
        pid: i32,
    },
    /// The connection on which it was created: when it is closed, the session ends.
    Connection,
    /// No owner: it ends on request, or when one of its time limits is reached.
    None,
}

/// A server of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Server")]
pub(super) struct ServerView {
    /// As given.
    pub(super) name: String,
    /// Its kind.
    pub(super) kind: KindView,
    /// The URL for clients. Every client that knows it may use the server.
    pub(super) url: String,
    /// A program that serves this server over its stdin and stdout, for hosts that support only stdio.
    pub(super) command: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// Its process trees and its sessions at other servers.
    pub(super) holdings: Vec<HoldingView>,
    /// Requests of its clients that were not answered yet.
    pub(super) in_flight: usize,
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ServerKind")]
pub(super) enum KindView {
    /// A program.
    Stdio,
    /// A server elsewhere.
    Http,
}

/// A resource that ends with the session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(rename = "LiveHolding")]
pub(super) enum HoldingView {
    /// A process tree.
    Tree {
        /// Its id in the ledger.
        run: String,
        /// The server's first process, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// Its containment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        containment: Option<Containment>,
        /// The number of its processes when its keeper last counted them.
        processes: usize,
        /// Its private memory at that time.
        memory_bytes: u64,
    },
    /// A session at a server elsewhere.
    Upstream {
        /// The server, without the query: that may hold a secret.
        url: String,
        /// The session's id there.
        session_id: String,
    },
}

/// Several sessions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Sessions")]
pub(super) struct SessionsView {
    /// In the order in which they began.
    pub(super) sessions: Vec<SessionView>,
}

/// The receipts of several sessions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Receipts")]
pub(super) struct ReceiptsView {
    /// One for each session.
    pub(super) receipts: Vec<Receipt>,
}

/// The result of an abort.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Aborted")]
pub(super) struct AbortedView {
    /// The number of requests that were cancelled.
    pub(super) aborted: usize,
}

/// The daemon that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Version")]
pub(super) struct VersionView {
    /// The version of leash.
    pub(super) version: String,
    /// The pid of the daemon.
    pub(super) pid: u32,
    /// The version of this API; raised when something changes its meaning.
    pub(super) api: u32,
}

/// The data of an event: `started`, `owner-lost`, `ending` or `ended`; `lost` says that the reader was too slow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Event")]
pub(super) struct EventView {
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// The time of the event, milliseconds since 1970.
    pub(super) at_ms: u64,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The receipt; only in `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Receipt>,
}

/// The body of `POST /v1/sessions`.
#[derive(JsonSchema)]
#[schemars(rename = "NewSession", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "read by `config`, which tells every mistake; this is its shape for the document")]
pub(super) struct NewSession {
    /// For people.
    name: Option<String>,
    /// At least one server, each as in the configuration of any MCP client, plus a `leash` object for leash's terms.
    /// Variables are not expanded.
    mcp_servers: BTreeMap<String, NewServer>,
    /// Its owner; without this field it has none.
    owner: Option<NewOwner>,
    /// The time that it lives without being renewed, as in `30s`.
    ttl: Option<String>,
    /// The time that it lives without being used, as in `10m`.
    idle: Option<String>,
    /// The time that it lives at most, as in `1h`.
    max_age: Option<String>,
    /// For people and for `?label=`.
    labels: Option<BTreeMap<String, String>>,
}

/// A server of a new session: `command` or `url`.
#[derive(JsonSchema)]
#[schemars(rename = "NewServer", rename_all = "camelCase")]
#[expect(dead_code, reason = "see `NewSession`")]
pub(super) struct NewServer {
    /// A program.
    command: Option<String>,
    /// Its arguments.
    args: Option<Vec<String>>,
    /// Variables added to the daemon's environment.
    env: Option<BTreeMap<String, String>>,
    /// Its working directory; without this field it is the one in which the daemon was started.
    cwd: Option<String>,
    /// `stdio`, `http` or `sse`.
    #[schemars(rename = "type")]
    kind: Option<String>,
    /// A server elsewhere.
    url: Option<String>,
    /// Headers sent to it.
    headers: Option<BTreeMap<String, String>>,
    /// Terms, as in docs/reference/config.md.
    leash: Option<BTreeMap<String, serde_json::Value>>,
}

/// The owner of a new session: one of the two.
#[derive(JsonSchema)]
#[schemars(rename = "NewOwner", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "see `NewSession`")]
pub(super) struct NewOwner {
    /// A process.
    pid: Option<i32>,
    /// The connection of this request: the response is an event stream.
    connection: Option<bool>,
}

/// The body of `PUT /v1/sessions/{id}/lease`.
#[derive(JsonSchema)]
#[schemars(rename = "Lease", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "see `NewSession`")]
pub(super) struct Lease {
    /// A new ttl, if it is to change.
    ttl: Option<String>,
}
