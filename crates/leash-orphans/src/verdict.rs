//! What is thought of a server, and why.

use std::time::Duration;

use serde::Serialize;

use super::facts::Why;
use leash_model::identity::Identity;

/// What is thought of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Somebody who lives holds it.
    Live,
    /// It can't be told.
    Unknown,
    /// A host that nobody can use any more: its terminal was closed, or it has lain in swap for long.
    StaleHost,
    /// Much speaks for an orphan, and something that a proof needs could not be seen.
    OrphanLikely,
    /// Nobody holds it, and everything that could say otherwise was read.
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

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// An MCP server.
    Server,
    /// A program that starts servers.
    Host,
    /// Something that a server of an ended session left.
    Remnant,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// What the server reads.
    Stdin,
    /// What it writes.
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
    /// Its command may be that of a server in a client's configuration: a variable in that, or the directory, is not known.
    Resembles {
        /// The client.
        client: String,
        /// The server's name there.
        name: String,
    },
    /// It is a server package that is known.
    Package {
        /// Which.
        package: String,
    },
    /// leash started it.
    Mark {
        /// The session.
        session: String,
    },
    /// It matches what is known of this client's program.
    HostProgram {
        /// The client.
        client: String,
    },
    /// The other end does not exist any more.
    EndGone {
        /// Of which stream.
        stream: Stream,
    },
    /// A living process holds the other end.
    HeldBy {
        /// Of which stream.
        stream: Stream,
        /// Who.
        by: Identity,
        /// Its short name.
        name: String,
    },
    /// Only processes of the server's own tree hold the other end.
    HeldByItself {
        /// Of which stream.
        stream: Stream,
    },
    /// Only processes that are orphans themselves hold the other end.
    HeldByOrphans {
        /// Of which stream.
        stream: Stream,
        /// The orphan.
        root: Identity,
    },
    /// It can't be told who holds the other end.
    NotVisible {
        /// Of which stream.
        stream: Stream,
        /// Why.
        why: Why,
    },
    /// This stream says nothing: the null device, a file, closed.
    NoChannel {
        /// Which.
        stream: Stream,
    },
    /// A terminal that is there.
    Terminal,
    /// Its terminal was closed.
    TerminalGone,
    /// Its parent is process 1 or a session's reaper: whoever started it is gone, or wanted it so.
    Reparented,
    /// A process that is not known to collect orphans is its parent.
    Parent {
        /// Who.
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
    /// A process in its tree is held by somebody outside.
    MemberHeld {
        /// The member.
        member: Identity,
        /// By whom.
        by: Identity,
    },
    /// A process in its tree sits at a terminal.
    MemberAtTerminal {
        /// The member.
        member: Identity,
    },
    /// A process in its tree could not be read.
    MemberUnread {
        /// The member.
        member: Identity,
    },
    /// Somebody is connected to it.
    Serves {
        /// On this TCP port.
        port: u16,
    },
    /// Somebody who could not be looked into is young enough to hold the other end.
    OthersUnread {
        /// How many.
        count: usize,
    },
    /// There may be processes that can't be seen at all: outside of our PID namespace, or hidden by /proc.
    OthersHidden,
    /// Its ends have not been gone for long enough: the host may be about to end it properly.
    NotSettled {
        /// How long they are known to be gone, in milliseconds.
        gone_ms: u64,
        /// How long it takes.
        needed_ms: u64,
    },
    /// A leash looks after it and will end it.
    Leashed {
        /// The session.
        session: String,
    },
    /// Its leash and its keeper are gone; the next start of leash ends it.
    LeashLost {
        /// The session.
        session: String,
    },
    /// It says that leash started it, and our ledger does not know it.
    ForeignLeash {
        /// The session.
        session: String,
    },
    /// It belongs to another user.
    OtherUser {
        /// Which.
        uid: u32,
    },
    /// Most of it lies in swap, for long.
    SwappedOut {
        /// Bytes in swap.
        swap: u64,
    },
}

/// A server (or host, or remnant), everything that belongs to it, and what is thought of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub role: Role,
    /// Its topmost process.
    pub root: Identity,
    /// Its processes, the root first.
    pub tree: Vec<Identity>,
    /// The client it belongs to, where that is known.
    pub client: Option<String>,
    /// The server's name in the client's configuration, or the package.
    pub server: Option<String>,
    /// Why it is taken for what it is.
    pub is: Evidence,
    /// What is thought of it.
    pub verdict: Verdict,
    /// Why.
    pub evidence: Vec<Evidence>,
    /// The session of leash that it belongs to.
    pub leashed: Option<String>,
    /// The ends of its stdin and stdout are gone, whether or not that has been so for long enough.
    pub ends_gone: bool,
    /// How long the root has been running.
    #[serde(serialize_with = "as_ms", rename = "age_ms")]
    pub age: Duration,
}

fn as_ms<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
