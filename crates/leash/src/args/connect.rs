//! `leash connect`, as typed.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::session_name::SessionName;
use super::values::{self, OwnerArg, Pair};

/// Give a stdio host an HTTP server; the session there is always ended
///
/// leash POSTs every line of the host as it is, and writes every message of the server as a line. When the owner is
/// gone (the host closed stdin, exited, crashed or was killed; the terminal was closed; leash was told to end or was
/// killed), leash DELETEs the session at the server; if leash itself is killed, its keeper does that.
///
/// leash speaks Streamable HTTP (2025-03-26 to 2026-07-28) and HTTP+SSE (2024-11-05). When the server has lost the
/// session, leash opens it again on the host's behalf.
///
/// The exit code is 0 when the host is done and the session is ended, 1 when the session could not be ended or was lost
/// (--no-revive), 128 + n after signal n, 125 when leash failed.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Send this header with every request, as `Name: value`; may be repeated
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Send this header with the value of a variable; may be repeated
    ///
    /// Other users of the machine can see the value of --header, but not that of a variable.
    #[arg(long = "header-env", value_name = "HEADER=VARIABLE")]
    pub(crate) header_env: Vec<Pair>,
    /// Send `Authorization: Bearer` with the token in this variable
    #[arg(long, value_name = "VARIABLE", value_parser = values::short)]
    pub(crate) bearer_env: Option<String>,
    /// The transport of the server; auto detects it
    #[arg(long, value_name = "TRANSPORT", default_value = "auto")]
    pub(crate) transport: TransportArg,
    /// Open the session again when the server has lost it; the default
    #[arg(long, overrides_with = "no_revive", action = ArgAction::SetTrue)]
    pub(crate) revive: bool,
    /// Exit when the server has lost the session, so that the host notices
    #[arg(long, overrides_with = "revive", action = ArgAction::SetTrue)]
    pub(crate) no_revive: bool,
    /// The owners of the session: parent, ancestor, stdin, tty, pid:N or none; may be repeated
    ///
    /// The default is the parent, the nearest ancestor that is not a wrapper (sh -c, npx, env...), the other end of
    /// stdin, and the terminal if the parent is in its session. Owners given here replace parent, ancestor and
    /// terminal; stdin stays watched, because its end is how MCP ends a server. `none` watches no process: the session
    /// ends with stdin, by `leash end`, or by a signal.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<OwnerArg>,
    /// How long requests may still be answered after the host closed stdin
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// End the session when it has lived this long
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) max_age: Option<Duration>,
    /// Join the session with this id [default: a session of its own]
    ///
    /// `leash end ID` ends all members of a session, wherever they were started. {VARIABLE} and {VARIABLE:-default} are
    /// replaced by the environment, so that one line of configuration names every host session: --session
    /// '{CLAUDE_CODE_SESSION_ID}'.
    #[arg(long, value_name = "ID", value_parser = SessionName::parse_id)]
    pub(crate) session: Option<SessionName>,
    /// Join the session that this variable names; unset, it is a session of its own
    #[arg(long, value_name = "VARIABLE", value_parser = values::short, conflicts_with = "session")]
    pub(crate) session_env: Option<String>,
    /// A name for listings [default: the host of the URL]
    #[arg(long, value_parser = values::short)]
    pub(crate) name: Option<String>,
    /// A label for listings and receipts; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = values::label)]
    pub(crate) labels: Vec<Pair>,
    /// Say on stderr what happens
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The server's address, http or https
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}

/// The transport of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArg {
    /// Streamable HTTP, and if that is refused, HTTP+SSE.
    Auto,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}
