//! The types that the control API shows; those of its sessions are in `leash_model::view`, because the commands read them,
//! too. `docs/reference/openapi.json` is made from them and their doc comments.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use leash_model::receipt::Receipt;
pub(super) use leash_model::view::{
    HoldingView, KindView, OwnerView, ServerView, SessionView, SessionsView, StateView, VersionView,
};

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
