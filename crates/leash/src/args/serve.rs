//! `leash serve`, as typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::values;

/// Serve MCP servers over HTTP; no session outlives its client
///
/// Every server of the configuration is at http://ADDRESS/NAME/mcp (Streamable HTTP, 2025-03-26 to 2026-07-28). A stdio
/// server gets a process tree per session, ended with the session; a session at an HTTP server is DELETEd on every end.
/// A session ends when its client says so, when the client's process is gone, when it was idle, when it is too old, and
/// with the gateway.
///
/// The configuration is read from --config, else ./.mcp.json, else $XDG_CONFIG_HOME/leash/leash.json; it is read again
/// on SIGHUP and when the file changes. --config also takes the file of an MCP client as it is: ~/.claude.json, Cursor's
/// mcp.json, VS Code's, Codex's config.toml and others. One server needs no file: -- COMMAND or --url URL.
///
/// Programs create their own sessions through the control socket, control.sock in the runtime directory: POST
/// /v1/sessions with their mcpServers, DELETE when the job is done. Only processes of the same user and of root can
/// use it.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("server").args(["name", "url", "command"]).multiple(true))]
pub(crate) struct Serve {
    /// The configuration: {"mcpServers": {...}, "leash": {...}}, or the file of an MCP client
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "url", "command"])]
    pub(crate) config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:5327]; an address that others can reach needs a token
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Listen on this port of 127.0.0.1
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,
    /// Ask clients for the bearer token in this variable
    #[arg(long, value_name = "VARIABLE", value_parser = values::short)]
    pub(crate) token_env: Option<String>,
    /// Without a token, serve requests of the gateway's user and root (own), or of every user of this machine (any)
    /// [default: own]
    #[arg(long, value_name = "USERS")]
    pub(crate) local_users: Option<LocalUsersArg>,
    /// Show no page to browsers of this user (`leash status --open` prints a link to it)
    #[arg(long)]
    pub(crate) no_page: bool,
    /// Serve nothing if one server cannot be served [default: warn, and answer 503 for this server]
    #[arg(long)]
    pub(crate) strict: bool,
    /// Report every mistake in the configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Say on stderr what happens
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten, next_help_heading = "Sessions as an API")]
    pub(crate) control: ControlArgs,
    #[command(flatten, next_help_heading = "One server, without a file")]
    pub(crate) single: SingleServer,
}

/// The control API, through which programs create sessions.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Put the control socket here [default: control.sock in the runtime directory]
    #[arg(long = "control", value_name = "PATH", conflicts_with = "no_control")]
    pub(crate) socket: Option<PathBuf>,
    /// Create no control socket
    #[arg(long)]
    pub(crate) no_control: bool,
    /// Serve the control API on this address as well; it always needs a token
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub(crate) control_listen: Option<SocketAddr>,
    /// Ask callers of --control-listen for the bearer token in this variable
    #[arg(long, value_name = "VARIABLE", requires = "control_listen", value_parser = values::short)]
    pub(crate) control_token_env: Option<String>,
    /// Run for a program that needs a gateway: exit when the last session is gone and the starter is dead
    ///
    /// leash reads a configuration only if one is named, and listens on any free port unless --listen names one. If
    /// another gateway has the control socket, this one exits at once with code 0. It exits when there has been no
    /// session and no starter for 5 seconds.
    #[arg(long, conflicts_with = "no_control")]
    pub(crate) on_demand: bool,
    /// The process that started it, with --on-demand [default: the parent process]
    #[arg(long, value_name = "PID", requires = "on_demand", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) starter: Option<i32>,
}

/// One server on the command line.
#[derive(Debug, Args)]
pub(crate) struct SingleServer {
    /// Its name, which is its path: /NAME/mcp [default: that of its package, script, module, image or program, or its host]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// It is an HTTP server at this address
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// The transport of the HTTP server
    #[arg(long, value_name = "TRANSPORT", default_value = "http", requires = "url")]
    pub(crate) transport: HttpTransportArg,
    /// Send this header to the HTTP server, as `Name: value`; may be repeated
    #[arg(long = "header", value_name = "HEADER", requires = "url")]
    pub(crate) headers: Vec<String>,
    /// End a session that was idle for this long, or `never` [default: 30m]
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration_or_never)]
    pub(crate) idle: Option<IdleLimit>,
    /// End a session without traffic and connection for this long, even if its client's process lives, or `never` [default: 12h]
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration_or_never)]
    pub(crate) abandoned: Option<IdleLimit>,
    /// End a session of this age
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration)]
    pub(crate) max_age: Option<Duration>,
    /// Most sessions at once
    #[arg(long, value_name = "COUNT", requires = "server")]
    pub(crate) max_sessions: Option<usize>,
    /// Most sessions at once of one client [default: nine tenths of all]
    #[arg(long, value_name = "COUNT", requires = "server")]
    pub(crate) max_sessions_per_client: Option<usize>,
    /// Time between the steps of an end (end of input, SIGTERM, SIGKILL) [default: 2s]
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration)]
    pub(crate) grace: Option<Duration>,
    /// Time from the exit of the client's process to the end of its session [default: 5s]
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration)]
    pub(crate) linger: Option<Duration>,
    /// How long the server may take to answer `initialize` [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration)]
    pub(crate) init_timeout: Option<Duration>,
    /// Ping clients that listen this often; three unanswered pings end the session
    #[arg(long, value_name = "DURATION", requires = "server", value_parser = values::duration)]
    pub(crate) keep_alive: Option<Duration>,
    /// Open a session anew on the client's behalf when the HTTP server has lost it
    #[arg(long, requires = "url")]
    pub(crate) revive: bool,
    /// The owner of a session: the client's process if leash can find it (auto), or only its traffic
    #[arg(long, value_name = "OWNER", default_value = "auto", requires = "server")]
    pub(crate) owner: SessionOwnerArg,
    /// The server and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The users of this machine that are served without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocalUsersArg {
    /// The gateway's own user, and root.
    Own,
    /// Every user of this machine.
    Any,
}

/// A duration, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleLimit(pub(crate) Option<Duration>);

/// The transport of an HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HttpTransportArg {
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// The owner of a session over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionOwnerArg {
    /// The client's process where it can be known.
    Auto,
    /// Its traffic alone.
    Traffic,
}
