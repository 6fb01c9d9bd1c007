//! What a gateway is told, validated. Nothing in here can be wrong any more; how it was written is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use leash_model::containment::Containment;
use leash_model::limits;
use leash_upstream::address::Upstream;

/// The port of a gateway that was not told another.
pub const PORT: u16 = 5327;

/// A whole gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen at. Port 0 means any free port.
    pub listen: SocketAddr,
    /// What a client must present as its bearer token.
    pub token: Option<Secret>,
    /// The variables that tokens were read from. No server inherits them.
    pub token_variables: BTreeSet<String>,
    /// Which users of this machine are served without a token.
    pub local_users: LocalUsers,
    /// Values of `Host` that are accepted besides the address itself.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are accepted besides our own.
    pub allowed_origins: Vec<String>,
    /// Largest body of a request.
    pub max_body: usize,
    /// Most sessions at once, of all servers together.
    pub max_sessions: usize,
    /// Most sessions at once of one client; nine tenths of [`max_sessions`](Settings::max_sessions) if none.
    pub max_sessions_per_client: Option<usize>,
    /// How long the sessions may take to end when the gateway stops.
    pub drain: Duration,
    /// How long the keeper of a killed gateway waits for the next one, which takes its sessions over; zero if it does not wait.
    pub takeover: Duration,
    /// The servers by name.
    pub servers: BTreeMap<String, Server>,
    /// Where the servers were written, for mistakes that show only later.
    pub origins: BTreeMap<String, Origin>,
}

impl Settings {
    /// Whether others than this machine's own programs could use the gateway without a token. It must not start then.
    pub fn is_exposed(&self) -> bool {
        self.token.is_none() && !self.listen.ip().to_canonical().is_loopback()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            token: None,
            token_variables: BTreeSet::new(),
            local_users: LocalUsers::Own,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: limits::MAX_BODY,
            max_sessions: limits::MAX_SESSIONS,
            max_sessions_per_client: None,
            drain: limits::DRAIN,
            takeover: limits::TAKEOVER,
            servers: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

/// Which users of this machine are served without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUsers {
    /// The gateway's own user, and root.
    #[default]
    Own,
    /// All of them.
    Any,
}

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One server behind the gateway. A reload leaves the sessions of equal servers alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name: the first segment of its path, `/NAME/mcp`.
    pub name: String,
    /// The terms of its sessions.
    pub policy: Policy,
    /// What it is.
    pub target: Target,
}

/// What a server is.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A program that speaks over its stdin and stdout: a tree per session.
    Command(CommandLine),
    /// A server elsewhere that speaks HTTP: a guarded session there per session here.
    Url(Upstream),
}

/// A program, and what its tree may do.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// The directory it is started in; ours if none.
    pub cwd: Option<PathBuf>,
    /// Exactly this containment.
    pub contain: Option<Containment>,
    /// At least this containment.
    pub require: Option<Containment>,
    /// Programs that may outlive the tree.
    pub spare: Vec<String>,
    /// Most bytes of memory of the tree.
    pub memory: Option<u64>,
    /// Most processes and threads of the tree.
    pub pids: Option<u64>,
}

impl fmt::Debug for CommandLine {
    /// Arguments and values of variables are where people put keys: they are counted and named, not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLine")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("contain", &self.contain)
            .field("require", &self.require)
            .field("spare", &self.spare)
            .field("memory", &self.memory)
            .field("pids", &self.pids)
            .finish()
    }
}

/// The terms of a server's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A session silent for so long ends, unless a process that owns it is known to live.
    pub idle: Option<Duration>,
    /// A session of this age ends.
    pub max_age: Option<Duration>,
    /// Most sessions of this server at once; only the gateway's own bound if none.
    pub max_sessions: Option<usize>,
    /// Most sessions of this server at once of one client; nine tenths of [`max_sessions`](Policy::max_sessions) if none.
    pub max_sessions_per_client: Option<usize>,
    /// Time between two steps of the ending ladder.
    pub grace: Duration,
    /// How long a session outlives the last process that used it.
    pub linger: Duration,
    /// How long the server may take to answer `initialize`.
    pub init_timeout: Duration,
    /// Whether and how often a client that listens is asked whether it is there.
    pub keep_alive: KeepAlive,
    /// Unanswered questions in a row that mean that it is not.
    pub keep_alive_failures: u32,
    /// Whether a session that the server has lost is opened anew on the client's behalf.
    pub revive: bool,
    /// What a session lives for.
    pub owner: OwnerPolicy,
    /// Bytes of its streams that a session keeps for resumption; 0 keeps none.
    pub replay: usize,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            idle: Some(limits::IDLE),
            max_age: None,
            max_sessions: None,
            max_sessions_per_client: None,
            grace: limits::GRACE,
            linger: limits::LINGER,
            init_timeout: limits::INIT_TIMEOUT,
            keep_alive: KeepAlive::Auto,
            keep_alive_failures: limits::KEEP_ALIVE_FAILURES,
            revive: false,
            owner: OwnerPolicy::Auto,
            replay: limits::REPLAY,
        }
    }
}

/// How a client that listens is asked whether it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// Now and then, unless its process is known. One that has answered before and does not any more loses its stream.
    #[default]
    Auto,
    /// Never.
    Never,
    /// This often, and one that does not answer loses its session.
    Every(Duration),
}

impl KeepAlive {
    /// The pause between two questions, if any are asked.
    pub fn pause(self) -> Option<Duration> {
        match self {
            KeepAlive::Auto => Some(limits::KEEP_ALIVE),
            KeepAlive::Never => None,
            KeepAlive::Every(pause) => Some(pause),
        }
    }
}

/// What a session over HTTP lives for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerPolicy {
    /// The client's process where it can be known, else its traffic.
    #[default]
    Auto,
    /// Its traffic alone: the client's process is never looked at.
    Traffic,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Compare it with what a client sent in constant time.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
