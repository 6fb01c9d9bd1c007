//! What the control API shows. `docs/reference/openapi.json` is made from these types.

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
    /// Its id. It is seen by others, in `ps` for instance; the URLs of its servers are not.
    pub(super) id: String,
    /// As given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Where it stands.
    pub(super) state: StateView,
    /// The owners. The connection ends when one of them is gone.
    pub(super) owner: OwnerView,
    /// As given.
    pub(super) labels: BTreeMap<String, String>,
    /// When it began, milliseconds since 1970.
    pub(super) started_at_ms: u64,
    /// How long it lives without being renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ttl_ms: Option<u64>,
    /// When it ends if it is not renewed, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease_until_ms: Option<u64>,
    /// How long it lives without being used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) idle_ms: Option<u64>,
    /// How long it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_age_ms: Option<u64>,
    /// When it ends if nothing happens, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline_ms: Option<u64>,
    /// Why it would end then: `lease_expired`, `idle` or `max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline_reason: Option<String>,
    /// For how long nobody has used it.
    pub(super) idle_for_ms: u64,
    /// Its servers, in the order of their names.
    pub(super) servers: Vec<ServerView>,
    /// What became of it; only when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Receipt>,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "State")]
pub(super) enum StateView {
    /// Its servers are being started.
    Starting,
    /// All of them run.
    Live,
    /// Everything of it is being ended.
    Ending,
    /// Nothing is left of it, or what is left is in its receipt.
    Ended,
}

/// What a session lives for.
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
    /// Nothing: it ends when it is told to, or when one of its times is over.
    None,
}

/// A server of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Server")]
pub(super) struct ServerView {
    /// As given.
    pub(super) name: String,
    /// What it is.
    pub(super) kind: KindView,
    /// Where a client reaches it. Whoever knows this may use it.
    pub(super) url: String,
    /// A program that is this server on its stdin and stdout, for hosts that take nothing else.
    pub(super) command: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// What it holds now.
    pub(super) holdings: Vec<HoldingView>,
    /// Requests of its clients that were not answered yet.
    pub(super) in_flight: usize,
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ServerKind")]
pub(super) enum KindView {
    /// A program.
    Stdio,
    /// A server elsewhere.
    Http,
}

/// Something that will be ended with the session.
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
        /// What keeps it together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        containment: Option<Containment>,
        /// Processes when it was last looked at.
        processes: usize,
        /// Private memory then.
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

/// What became of several sessions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Receipts")]
pub(super) struct ReceiptsView {
    /// One for each.
    pub(super) receipts: Vec<Receipt>,
}

/// What was cancelled.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Aborted")]
pub(super) struct AbortedView {
    /// Requests that were in flight.
    pub(super) aborted: usize,
}

/// Who answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Version")]
pub(super) struct VersionView {
    /// Of leash.
    pub(super) version: String,
    /// Of the daemon.
    pub(super) pid: u32,
    /// Of this API; raised when something changes its meaning.
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
    /// When, milliseconds since 1970.
    pub(super) at_ms: u64,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// What became of it; only of `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<Receipt>,
}

/// What is asked for with `POST /v1/sessions`.
#[derive(JsonSchema)]
#[schemars(rename = "NewSession", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "read by `config`, which tells every mistake; this is its shape for the document")]
pub(super) struct NewSession {
    /// For people.
    name: Option<String>,
    /// At least one server, each as in the configuration of any MCP client, with a `leash` object for leash's own terms. No variable
    /// is expanded.
    mcp_servers: BTreeMap<String, NewServer>,
    /// What it lives for; nothing if it is left out.
    owner: Option<NewOwner>,
    /// How long it lives without being renewed, as in `30s`.
    ttl: Option<String>,
    /// How long it lives without being used, as in `10m`.
    idle: Option<String>,
    /// How long it lives, as in `1h`.
    max_age: Option<String>,
    /// For people and for `?label=`.
    labels: Option<BTreeMap<String, String>>,
}

/// A server that is asked for: `command` or `url`.
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
    /// Where it is started; where the daemon was if it is left out.
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

/// What a session is to live for: one of the two.
#[derive(JsonSchema)]
#[schemars(rename = "NewOwner", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "see `NewSession`")]
pub(super) struct NewOwner {
    /// A process.
    pid: Option<i32>,
    /// The connection of this very request: the answer is an event stream.
    connection: Option<bool>,
}

/// What is asked for with `PUT /v1/sessions/{id}/lease`.
#[derive(JsonSchema)]
#[schemars(rename = "Lease", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "see `NewSession`")]
pub(super) struct Lease {
    /// Another time than before.
    ttl: Option<String>,
}
