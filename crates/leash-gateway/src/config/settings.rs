//! The validated settings of a gateway. They contain no mistakes, and do not keep how they were written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::{fmt, path::PathBuf, time::Duration};

use super::mistake::ConfigMistake;
use leash_model::{containment::Containment, limits};
use leash_tree::contain::caps::Caps;
use leash_upstream::address::UpstreamServer;

/// The default port of a gateway.
pub const PORT: u16 = 5327;

/// The settings of a whole gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen at. Port 0 means any free port.
    pub listen: SocketAddr,
    /// The bearer token that a client must send.
    pub token: Option<Secret>,
    /// The variables that tokens were read from. No server inherits them.
    pub token_variables: BTreeSet<String>,
    /// The users of this machine that are served without a token.
    pub local_users: LocalUsers,
    /// Accepted values of `Host` besides the address itself.
    pub allowed_hosts: Vec<String>,
    /// Accepted values of `Origin` besides our own.
    pub allowed_origins: Vec<String>,
    /// True if browsers on this machine may see the page.
    pub page: bool,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// The limit of sessions at once, of all servers together.
    pub max_sessions: usize,
    /// The limit of sessions at once of one client; nine tenths of [`max_sessions`](Settings::max_sessions) if `None`.
    pub max_sessions_per_client: Option<usize>,
    /// The time that the sessions may take to end when the gateway stops.
    pub drain: Duration,
    /// The time that the keeper of a killed gateway waits for the next gateway, which takes over its sessions; zero
    /// means no wait.
    pub takeover: Duration,
    /// The budget that all trees of the user share.
    pub budget: Caps,
    /// The servers by name.
    pub servers: BTreeMap<String, ServerSettings>,
    /// The positions of the servers in the file, for mistakes that are found later.
    pub origins: BTreeMap<String, FilePosition>,
    /// Servers that clients cannot use, with their mistakes: the gateway answers 503. One whose program is missing is in
    /// `servers` as well.
    pub unavailable: BTreeMap<String, Vec<ConfigMistake>>,
}

impl Settings {
    /// True if programs on other machines could use the gateway without a token. Then it must not start.
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
            page: true,
            max_body: limits::MAX_BODY,
            max_sessions: limits::MAX_SESSIONS,
            max_sessions_per_client: None,
            drain: limits::DRAIN,
            takeover: limits::TAKEOVER,
            budget: Caps::default(),
            servers: BTreeMap::new(),
            origins: BTreeMap::new(),
            unavailable: BTreeMap::new(),
        }
    }
}

/// The users of this machine that are served without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUsers {
    /// The gateway's own user, and root.
    #[default]
    Own,
    /// All users.
    Any,
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One server behind the gateway. A reload leaves the sessions of equal servers alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Its name: the first segment of its path, `/NAME/mcp`.
    pub name: String,
    /// The terms of its sessions.
    pub policy: SessionPolicy,
    /// Its program or its URL.
    pub target: ServerTarget,
}

/// The program or the URL of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerTarget {
    /// A program that speaks over its stdin and stdout: each session has a tree.
    Command(ServerCommand),
    /// A server that speaks HTTP: each session here has a guarded session there.
    Url(UpstreamServer),
}

/// A program, and the limits of its tree.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// Its working directory; that of leash if `None`.
    pub cwd: Option<PathBuf>,
    /// The exact containment.
    pub contain: Option<Containment>,
    /// The weakest acceptable containment.
    pub require: Option<Containment>,
    /// Programs that may outlive the tree.
    pub spare: Vec<String>,
    /// The limits of the tree.
    pub caps: Caps,
}

impl fmt::Debug for ServerCommand {
    /// Shows the number of arguments and the names of variables, but no values: users put keys there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLine")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("contain", &self.contain)
            .field("require", &self.require)
            .field("spare", &self.spare)
            .field("caps", &self.caps)
            .finish()
    }
}

/// The terms of a server's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPolicy {
    /// The idle timeout. A session that is idle for this time ends, unless a process that owns it is known to live. If
    /// that process has begun a newer session at the server and has no connection of this one, this one ends, too.
    pub idle: Option<Duration>,
    /// The time after which a session ends without traffic and without a connection, even if its client process lives.
    pub abandoned: Option<Duration>,
    /// The maximum age of a session.
    pub max_age: Option<Duration>,
    /// The limit of sessions of this server at once; only the gateway's own limit applies if `None`.
    pub max_sessions: Option<usize>,
    /// The limit of sessions of this server at once of one client; nine tenths of
    /// [`max_sessions`](SessionPolicy::max_sessions) if `None`.
    pub max_sessions_per_client: Option<usize>,
    /// The time between two steps of the end of a tree.
    pub grace: Duration,
    /// The time that a session outlives the last process that used it.
    pub linger: Duration,
    /// The time that the server may take to answer `initialize`.
    pub init_timeout: Duration,
    /// The pings to a client that listens.
    pub keep_alive: KeepAlive,
    /// The number of unanswered pings in a row after which the client counts as gone.
    pub keep_alive_failures: u32,
    /// True if leash opens a session that the server has lost again on the client's behalf.
    pub revive: bool,
    /// The owner of a session.
    pub owner: OwnerPolicy,
    /// The bytes of its streams that a session keeps for resumption; 0 keeps none.
    pub replay: usize,
    /// The idle time after which a tree may be stopped when memory is short; never if `None`.
    pub pressure_stop: Option<Duration>,
}

impl Default for SessionPolicy {
    fn default() -> SessionPolicy {
        SessionPolicy {
            idle: Some(limits::IDLE),
            abandoned: Some(limits::ABANDONED),
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
            pressure_stop: None,
        }
    }
}

/// The policy for pings to a client that listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// Pings at the default interval, unless the client's process is known. A client that answered before and stops
    /// answering loses its stream.
    #[default]
    Auto,
    /// No pings.
    Never,
    /// Pings at this interval; a client that does not answer loses its session.
    Every(Duration),
}

impl KeepAlive {
    /// The pause between two pings, if any are sent.
    pub fn pause(self) -> Option<Duration> {
        match self {
            KeepAlive::Auto => Some(limits::KEEP_ALIVE),
            KeepAlive::Never => None,
            KeepAlive::Every(pause) => Some(pause),
        }
    }
}

/// The owner of a session over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerPolicy {
    /// The client's process if leash can find it, otherwise its traffic.
    #[default]
    Auto,
    /// Its traffic alone: leash never searches for the client's process.
    Traffic,
}

/// A text that debug output never shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Compare it with a client's text in constant time.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
