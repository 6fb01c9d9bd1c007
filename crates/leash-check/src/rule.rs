//! The requirements for servers and hosts, their sources, and the harm to users if they are not met. A table, and
//! nothing else.

use serde::Serialize;

/// The place in the specification, and its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clause {
    /// The revision.
    pub revision: &'static str,
    /// The page and the section.
    pub section: &'static str,
    /// The requirement, or a note that the specification has none.
    pub text: &'static str,
}

/// A user's report of the harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserReport {
    /// The report in the field.
    pub report: &'static str,
    /// The harm.
    pub text: &'static str,
}

/// A requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// The source in the specification.
    pub specification: Clause,
    /// The report of a user.
    pub users: UserReport,
}

/// A place in the specification: the revision, and the page with the section.
type Place = (&'static str, &'static str);

const STDIO_SHUTDOWN: Place = ("2026-07-28", "basic/transports/stdio, Shutdown");
const SHUTDOWN: Place = ("2025-11-25", "basic/lifecycle, Shutdown");
const INITIALIZATION: Place = ("2025-11-25", "basic/lifecycle, Initialization");
const STDIO_LIFECYCLE: Place = ("2026-07-28", "basic/transports/stdio, Lifecycle");
const SESSIONS: Place = ("2025-11-25", "basic/transports, Session Management");
const SECURITY: Place = ("2025-11-25", "basic/transports, Security Warning");

/// Hosts leave servers behind when they exit.
const ORPHANS: &str = "anthropics/claude-code#26658";
/// No client sends DELETE.
const DELETES: &str = "anthropics/claude-code#56456";
/// Sessions that no client ends stay for ever.
const TIMEOUT: &str = "modelcontextprotocol/go-sdk#499";
/// A worker with a session per job can't release the resources of a job.
const WORKER: &str = "github/copilot-sdk#1163";

/// A requirement at its place in the specification, and the harm that a report describes.
const fn rule(place: Place, requirement: &'static str, report: &'static str, harm: &'static str) -> Rule {
    let specification = Clause { revision: place.0, section: place.1, text: requirement };
    Rule { specification, users: UserReport { report, text: harm } }
}

/// A server exits at the end of its input.
pub const EOF: Rule = rule(
    STDIO_SHUTDOWN,
    "servers SHOULD exit promptly when their standard input is closed",
    ORPHANS,
    "a host that crashes can do no more than close stdin: 80 servers that ignored it held 13 GB of swap",
);

/// A server exits on SIGTERM.
pub const TERM: Rule = rule(
    SHUTDOWN,
    "the client sends SIGTERM if the server does not exit within a reasonable time, and SIGKILL after that",
    ORPHANS,
    "a server that ignores SIGTERM is killed without cleanup, or stays if a wrapper (npx) keeps the signal",
);

/// A server exits when its host dies, which closes both pipes.
pub const HOST_GONE: Rule = rule(
    STDIO_SHUTDOWN,
    "servers SHOULD exit promptly when their standard input is closed",
    ORPHANS,
    "after a crash of the host its servers keep running: no process is left to send a signal",
);

/// A server answers the handshake.
pub const HANDSHAKE: Rule = rule(
    INITIALIZATION,
    "the server MUST respond to `initialize` with its own capabilities and information",
    WORKER,
    "a host that waits for a server that never answers keeps everything that it started for that job",
);

/// A server can be started again after it has ended.
pub const AGAIN: Rule = rule(
    STDIO_LIFECYCLE,
    "when a server ends unexpectedly, the client SHOULD restart it",
    WORKER,
    "a lock, a port or a profile that the last run left behind makes the server of the next job fail",
);

/// No process that a server started outlives it.
pub const HELPERS: Rule = rule(
    STDIO_SHUTDOWN,
    "the process must exit at shutdown; its children are not mentioned, and no official SDK ends them",
    ORPHANS,
    "helpers outlive the server, have no owner, and add up until memory is used up",
);

/// No port stays in use.
pub const PORTS: Rule = rule(
    STDIO_SHUTDOWN,
    "ports are not mentioned; the process that holds one must exit",
    WORKER,
    "the next job finds the port in use by a process without an owner",
);

/// No browser stays.
pub const BROWSERS: Rule = rule(
    STDIO_SHUTDOWN,
    "browsers are not mentioned; a server has to end what it starts",
    ORPHANS,
    "a browser that stays holds hundreds of megabytes and the lock of its profile: the next one does not start",
);

/// A server opens a session.
pub const SESSION: Rule = rule(
    SESSIONS,
    "a server MAY assign a session id in the HTTP response that has the InitializeResult",
    TIMEOUT,
    "each session holds memory on the server until the client or the server ends it",
);

/// A server accepts DELETE.
pub const DELETE: Rule = rule(
    SESSIONS,
    "clients SHOULD send DELETE to end a session; the server MAY answer 405 to say that clients can't",
    DELETES,
    "a client that wants to clean up can't: its sessions stay until the server restarts",
);

/// A server answers 404 for an ended session.
pub const TERMINATED: Rule = rule(
    SESSIONS,
    "a server MUST answer 404 to requests with the id of a session that it has terminated",
    DELETES,
    "only 404 tells a client to open a new session: otherwise it is stuck, or the session lives on",
);

/// A server ends idle sessions.
pub const EXPIRY: Rule = rule(
    SESSIONS,
    "the server MAY terminate the session at any time; no time is named",
    TIMEOUT,
    "most clients never send DELETE: without an idle time every one of their sessions stays for ever",
);

/// A server refuses a foreign origin.
pub const ORIGIN: Rule = rule(
    SECURITY,
    "servers MUST validate the Origin header and MUST answer 403 when it is present and invalid",
    TIMEOUT,
    "any web page can open any number of sessions on a local server, and no client ends them",
);

/// An ended session holds no memory.
pub const MEMORY: Rule = rule(
    SESSIONS,
    "memory is not mentioned; a terminated session can't be used any more",
    TIMEOUT,
    "sessions add up to gigabytes: clients open one for every call",
);

/// A host exits when it is asked to.
pub const HOST_LEAVES: Rule = rule(
    SHUTDOWN,
    "one side, usually the client, ends the connection; the host begins",
    ORPHANS,
    "hosts of closed terminals stay, with all their servers",
);

/// A host ends its stdio servers.
pub const HOST_SERVERS: Rule = rule(
    SHUTDOWN,
    "the client SHOULD close stdin, wait, send SIGTERM if the server does not exit, and SIGKILL if it still does not",
    ORPHANS,
    "servers outlive the host: 80 of them held 13 GB of swap",
);

/// A killed host can't end its servers.
pub const HOST_KILLED: Rule = rule(
    STDIO_SHUTDOWN,
    "a killed host is not mentioned; only the kernel or another program can end its servers",
    ORPHANS,
    "servers outlive a host that crashed or ran out of memory",
);

/// A host ends its HTTP sessions.
pub const HOST_DELETE: Rule = rule(
    SESSIONS,
    "clients that no longer need a session SHOULD send an HTTP DELETE with its id",
    DELETES,
    "hosts never end their sessions: servers keep each one of them",
);
