//! The verdict about a server, and the evidence for it.

use std::time::Duration;

use serde::Serialize;

use super::facts::Why;
use leash_model::identity::Identity;

/// The verdict about a server, host or remnant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// An MCP server.
    Server,
    /// A program that starts servers.
    Host,
    /// A process that a server of an ended session left behind.
    Remnant,
}

/// One of the two streams of a stdio server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The stream that the server reads.
    Stdin,
    /// The stream that it writes.
    Stdout,
}

/// One fact that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    /// Its command is that of a server in a client's configuration.
    Declared {
        /// The client.
        client: String,
        /// The server's name there.
        name: String,
    },
    /// Its command may be that of a server in a client's configuration: the value of a variable, or the directory, is
    /// not known.
    Resembles {
        /// The client.
        client: String,
        /// The server's name there.
        name: String,
    },
    /// It is a known server package.
    Package {
        /// The package.
        package: String,
    },
    /// leash started it.
    Mark {
        /// The session.
        session: String,
    },
    /// It matches the known pattern of this client's program.
    HostProgram {
        /// The client.
        client: String,
    },
    /// The other end is closed.
    EndGone {
        /// The stream.
        stream: Stream,
    },
    /// A living process holds the other end.
    HeldBy {
        /// The stream.
        stream: Stream,
        /// The holder.
        by: Identity,
        /// Its short name.
        name: String,
    },
    /// Only processes of the server's own tree hold the other end.
    HeldByItself {
        /// The stream.
        stream: Stream,
    },
    /// Only processes that are orphans themselves hold the other end.
    HeldByOrphans {
        /// The stream.
        stream: Stream,
        /// The orphan.
        root: Identity,
    },
    /// The holders of the other end can't be determined.
    NotVisible {
        /// The stream.
        stream: Stream,
        /// The reason.
        why: Why,
    },
    /// This stream has no other end: it is the null device, a file, or closed.
    NoChannel {
        /// The stream.
        stream: Stream,
    },
    /// An open terminal.
    Terminal,
    /// Its terminal was closed.
    TerminalGone,
    /// Its parent is process 1 or a session's reaper: the process that started it has exited, or has detached it on
    /// purpose.
    Reparented,
    /// Its parent is a process that is not known to collect orphans.
    Parent {
        /// The parent.
        by: Identity,
        /// Its short name.
        name: String,
    },
    /// A program of a client is above it.
    HostAbove {
        /// The host.
        by: Identity,
        /// The client.
        client: String,
    },
    /// A process outside of its tree holds a process in its tree.
    MemberHeld {
        /// The member.
        member: Identity,
        /// The holder.
        by: Identity,
    },
    /// A process in its tree uses a terminal.
    MemberAtTerminal {
        /// The member.
        member: Identity,
    },
    /// A process in its tree could not be read.
    MemberUnread {
        /// The member.
        member: Identity,
    },
    /// A client is connected to it.
    Serves {
        /// The TCP port.
        port: u16,
    },
    /// A process that could not be read is young enough to hold the other end.
    OthersUnread {
        /// The number of such processes.
        count: usize,
    },
    /// Processes may exist that can't be seen at all: outside of our PID namespace, or hidden by /proc.
    OthersHidden,
    /// The other ends have been closed only for a short time: the host may be about to end it properly.
    NotSettled {
        /// The time since they are known to be closed, in milliseconds.
        gone_ms: u64,
        /// The time that is needed.
        needed_ms: u64,
    },
    /// A running leash supervises it and will end it.
    Leashed {
        /// The session.
        session: String,
    },
    /// Its supervisor and its keeper are gone; the next start of leash ends it.
    LeashLost {
        /// The session.
        session: String,
    },
    /// Its environment says that leash started it, but our ledger does not contain it.
    ForeignLeash {
        /// The session.
        session: String,
    },
    /// It belongs to another user.
    OtherUser {
        /// The user id.
        uid: u32,
    },
    /// Most of its memory has been in swap for a long time.
    SwappedOut {
        /// Bytes in swap.
        swap: u64,
    },
}

/// A server (or host, or remnant), its process tree, and the verdict about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of process tree.
    pub role: Role,
    /// Its topmost process.
    pub root: Identity,
    /// Its processes, the root first.
    pub tree: Vec<Identity>,
    /// The client it belongs to, if known.
    pub client: Option<String>,
    /// The server's name in the client's configuration, or the package.
    pub server: Option<String>,
    /// The evidence for its kind.
    pub is: Evidence,
    /// The verdict.
    pub verdict: Verdict,
    /// The evidence for the verdict.
    pub evidence: Vec<Evidence>,
    /// The session of leash that it belongs to.
    pub leashed: Option<String>,
    /// True if the other ends of its stdin and stdout are closed, even if not for long enough.
    pub ends_gone: bool,
    /// The time since the start of the root.
    #[serde(serialize_with = "as_ms", rename = "age_ms")]
    pub age: Duration,
}

fn as_ms<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
