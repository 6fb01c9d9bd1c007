//! `leash guard`, as typed.

use clap::Args;

use super::session_name::SessionName;
use super::values::{self, OwnerArg, Pair};

/// Hold the HTTP sessions of a program, and end them when the program is gone
///
/// For programs that speak MCP over HTTP themselves; the packages for TypeScript and Python start it. The program writes
/// one line of JSON to stdin for each session that it opened ({"open": {"url": URL, "session": ID, "version": VERSION,
/// "headers": [[NAME, VALUE]...]}}) or ended ({"ended": {"session": ID, "status": STATUS}}). When the owner is gone or
/// stdin is closed, leash DELETEs the sessions that are open; if leash itself is killed, its keeper does that. The headers
/// stay in memory.
///
/// leash writes a line of JSON to stdout when it is ready ({"session": ID}), when it holds an opened session ({"held":
/// ID}), and at the end the receipt, if there was a session.
///
/// The exit code is 0 when all sessions are ended, 1 when one could not be ended, 128 + n after signal n, 125 when leash
/// failed.
#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// The owners of the sessions: parent, ancestor, stdin, tty, pid:N or none; may be repeated
    ///
    /// The default is the parent, the nearest ancestor that is not a wrapper (sh -c, npx, env...), the other end of
    /// stdin, and the terminal if the parent is in its session. Owners given here replace parent, ancestor and
    /// terminal; stdin stays watched.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<OwnerArg>,
    /// Join the session with this id [default: a session of its own]
    #[arg(long, value_name = "ID", value_parser = SessionName::parse_id)]
    pub(crate) session: Option<SessionName>,
    /// A name for listings
    #[arg(long, default_value = "http", value_parser = values::short)]
    pub(crate) name: String,
    /// A label for listings and receipts; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = values::label)]
    pub(crate) labels: Vec<Pair>,
    /// Say on stderr what happens
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
