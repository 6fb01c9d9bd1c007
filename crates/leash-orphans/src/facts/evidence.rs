//! The evidence on which a verdict rests.

use serde::Serialize;

use super::UnreadReason;
use leash_model::identity::Identity;

/// One of the two streams of a stdio server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StdioStream {
    /// The stream that the server reads.
    Stdin,
    /// The stream that it writes.
    Stdout,
}

/// One fact that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        stream: StdioStream,
    },
    /// A living process holds the other end.
    HeldBy {
        /// The stream.
        stream: StdioStream,
        /// The holder.
        by: Identity,
        /// The client whose program it is, else its command in short.
        name: String,
    },
    /// Only processes of the server's own tree hold the other end.
    HeldByItself {
        /// The stream.
        stream: StdioStream,
    },
    /// Only processes that are orphans themselves hold the other end.
    HeldByOrphans {
        /// The stream.
        stream: StdioStream,
        /// The orphan.
        root: Identity,
    },
    /// The holders of the other end can't be determined.
    NotVisible {
        /// The stream.
        stream: StdioStream,
        /// The reason.
        why: UnreadReason,
    },
    /// This stream has no other end: it is the null device, a file, or closed.
    NoChannel {
        /// The stream.
        stream: StdioStream,
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
        /// The client whose program it is, else its command in short.
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
