//! The sessions of a gateway, as the control API shows them to its clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{client::GatewayClient, containment::Containment, receipt::Receipt};

/// A session, as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Session"))]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its id. Other users can see it, in `ps` for instance; they cannot see the URLs of its servers.
    pub id: String,
    /// As given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its state.
    pub state: StateView,
    /// Its owner: the session ends when its owner is gone.
    pub owner: OwnerView,
    /// As given.
    pub labels: BTreeMap<String, String>,
    /// The time at which it began, milliseconds since 1970.
    pub started_at_ms: u64,
    /// The time that it lives without being renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The time at which it ends if it is not renewed, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until_ms: Option<u64>,
    /// The time that it lives without being used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// The time that it lives at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
    /// The time at which it ends if it is neither used nor renewed, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The reason for which it would end then: `lease_expired`, `idle` or `max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_reason: Option<String>,
    /// The time since it was last used.
    pub idle_for_ms: u64,
    /// Its servers, in the order of their names.
    pub servers: Vec<ServerView>,
    /// Its receipt; only when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "State"))]
#[serde(rename_all = "camelCase")]
pub enum StateView {
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Owner"))]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum OwnerView {
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Server"))]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// As given.
    pub name: String,
    /// Its kind.
    pub kind: KindView,
    /// The URL for clients. Every client that knows it may use the server.
    pub url: String,
    /// A program that serves this server over its stdin and stdout, for hosts that support only stdio.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its process trees and its sessions at other servers.
    pub holdings: Vec<HoldingView>,
    /// The clients that have a session at it now; absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<GatewayClient>,
    /// Requests of its clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Those of them that were not answered yet.
    pub in_flight: usize,
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ServerKind"))]
#[serde(rename_all = "camelCase")]
pub enum KindView {
    /// A program.
    Stdio,
    /// A server elsewhere.
    Http,
}

/// A resource that ends with the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LiveHolding"))]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HoldingView {
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Sessions"))]
#[serde(rename_all = "camelCase")]
pub struct SessionsView {
    /// In the order in which they began.
    pub sessions: Vec<SessionView>,
}

/// The daemon that answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Version"))]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    /// The version of leash.
    pub version: String,
    /// The pid of the daemon.
    pub pid: u32,
    /// The version of this API; raised when something changes its meaning.
    pub api: u32,
}

/// A one-time link to the page of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PageLink"))]
#[serde(rename_all = "camelCase")]
pub struct PageLinkView {
    /// The link. It is a credential until it is used.
    pub url: String,
    /// The time for which it works.
    pub expires_ms: u64,
}
