//! The verdict about a server.

use std::time::Duration;

use serde::Serialize;

use crate::facts::{Evidence, StdioStream};
use leash_model::duration;
use leash_model::identity::Identity;

/// The verdict about a server, host or remnant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A living process holds it.
    Live,
    /// The facts are not enough to decide.
    Unknown,
    /// A host that can't be used any more: its terminal was closed, or it has been in swap for a long time.
    StaleHost,
    /// The evidence suggests an orphan, but something that a proof needs could not be read.
    OrphanLikely,
    /// No process holds it, and every process that could hold it was read.
    OrphanProved,
}

impl Verdict {
    /// One word for listings.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Live => "live",
            Verdict::Unknown => "unknown",
            Verdict::StaleHost => "stale-host",
            Verdict::OrphanLikely => "likely",
            Verdict::OrphanProved => "orphan",
        }
    }
}

/// The kind of process tree that a finding describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TreeRole {
    /// An MCP server.
    Server,
    /// A program that starts servers.
    Host,
    /// A process that a server of an ended session left behind.
    Remnant,
}

/// The process that holds a server: it has the other end of its stdin, or of its stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The process.
    pub process: Identity,
    /// The client whose program it is; null in JSON if it is no program of a known client.
    pub client: Option<String>,
    /// Its command in short, such as `node host.mjs`.
    pub command: String,
}

impl Holder {
    /// The name of its client, else its command.
    pub fn name(&self) -> &str {
        self.client.as_deref().unwrap_or(&self.command)
    }
}

/// A server (or host, or remnant), its process tree, and the verdict about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The kind of process tree.
    pub role: TreeRole,
    /// Its topmost process.
    pub root: Identity,
    /// Its processes, the root first.
    pub tree: Vec<Identity>,
    /// The process that holds it, if one does and can be seen.
    pub holder: Option<Holder>,
    /// The client whose program holds it; without a holder, the client above it, or the one whose mark it has.
    pub client: Option<String>,
    /// The server's name: its key in a client's configuration, or that of its package.
    pub server: Option<String>,
    /// The evidence for its kind.
    #[serde(rename = "is")]
    pub identified_by: Evidence,
    /// The verdict.
    pub verdict: Verdict,
    /// The evidence for the verdict.
    pub evidence: Vec<Evidence>,
    /// The session of leash that it belongs to.
    pub leashed: Option<String>,
    /// True if the other ends of its stdin and stdout are closed, even if not for long enough.
    pub ends_gone: bool,
    /// The time since the start of the root, in milliseconds in JSON.
    #[serde(serialize_with = "as_ms", rename = "age_ms")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub age: Duration,
}

impl Finding {
    /// The entry with the same command in the configuration of a client: the client, and the server's key there. Such
    /// an entry does not prove that this client started it.
    pub fn same_command(&self) -> Option<(&str, &str)> {
        match &self.identified_by {
            Evidence::Declared { client, name } | Evidence::Resembles { client, name } => Some((client, name)),
            _ => None,
        }
    }

    /// True if the kernel reports the other ends of both stdin and stdout as closed. It is not enough that only processes
    /// of the tree itself, or other orphans, hold them.
    pub fn ends_are_closed(&self) -> bool {
        let is_closed = |stream| self.evidence.contains(&Evidence::EndGone { stream });
        is_closed(StdioStream::Stdin) && is_closed(StdioStream::Stdout)
    }
}

fn as_ms<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration::as_ms(*span))
}
