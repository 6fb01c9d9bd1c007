//! `leash check`, as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leash_check::stdio::ToolCall;

use super::values;

/// Test a server or a host for leaks: what does it leave behind?
///
/// `leash check -- COMMAND` tests a stdio server: leash starts it several times and asks it to exit in a different way
/// each time (end of input, SIGTERM, both pipes closed; before, during and after the handshake, with a call in
/// flight). The server must exit, with everything that it started, and start again. `leash check --url URL` tests what
/// an HTTP server does with sessions that are ended, unknown, abandoned or opened by a foreign web page. `leash check
/// --host -- COMMAND` tests a host: leash acts as its servers, ends the host in every way (it exits, SIGTERM, SIGINT,
/// SIGHUP, its terminal is closed, SIGKILL), and lists the processes that survive and the sessions that were not
/// deleted.
///
/// Everything runs in a containment, and leash ends what is left afterwards, also after Ctrl-C. Each finding names the
/// requirement of the specification and the harm to users. The exit code is 0 when there is no finding, 1 when there
/// is, 2 when the command line is wrong, 128 + n after signal n.
#[derive(Debug, Args)]
#[command(override_usage = "leash check [OPTIONS] -- <COMMAND>...
       leash check [OPTIONS] --url <URL>
       leash check [OPTIONS] --host -- <COMMAND>...")]
pub(crate) struct Check {
    /// The address of an HTTP server
    #[arg(long, conflicts_with = "command", required_unless_present_any = ["command", "part"])]
    pub(crate) url: Option<String>,
    /// The command is a host, not a server
    ///
    /// The host gets its servers from a configuration file in the usual format: {config} in an argument, and
    /// LEASH_CHECK_CONFIG in the environment, is its path. An argument that is {stdio} or {deaf} becomes the command
    /// line of one stdio server, and {url} the address of the HTTP server (LEASH_CHECK_URL). The host must connect to
    /// at least one of them. A host that keeps running is ended when it is idle; a host that finishes its work and
    /// exits is judged by what it leaves behind, and is also ended while it works.
    #[arg(long, requires = "command", conflicts_with_all = ["url", "call"])]
    pub(crate) host: bool,
    /// How long a process may take to exit once it was asked to
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// How long the handshake may take; for a host, how long it may take to connect
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
    pub(crate) ready: Duration,
    /// The call that is in flight when a stdio server is asked to exit: a tool, and its arguments as JSON [default:
    /// tools/list]
    #[arg(long, value_name = "TOOL [JSON]", value_parser = call, conflicts_with = "url")]
    pub(crate) call: Option<ToolCall>,
    /// With --url: a session must have ended after this time without a request [default: not tested]
    #[arg(long, value_name = "DURATION", value_parser = values::duration, requires = "url")]
    pub(crate) expect_idle: Option<Duration>,
    /// With --url: the server's process, whose memory is measured over 300 sessions or more
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), requires = "url")]
    pub(crate) pid: Option<i32>,
    /// With --url: send the bearer token that is in this variable
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    pub(crate) token_env: Option<String>,
    /// Count warnings as findings
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print progress on stderr, together with the server's own stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Which server to stand in for (used by leash itself)
    #[arg(long, hide = true, requires = "journal")]
    pub(crate) part: Option<CheckRole>,
    /// Where a stand-in says what it sees (used by leash itself)
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// The server or the host, and its arguments; options of leash come before it
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The roles that leash plays in a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckRole {
    /// Exits at the end of its input.
    Polite,
    /// Exits on SIGTERM only, and has a helper.
    Deaf,
    /// The helper of the deaf server.
    Helper,
    /// Starts the command with the terminal on its stderr as controlling terminal.
    TerminalStarter,
    /// Executes the command in the new session.
    TerminalHost,
    /// Opens a session at --url and exits without ending it.
    Visitor,
}

/// A tool and its arguments.
fn call(text: &str) -> Result<ToolCall, String> {
    let (tool, arguments) = text.trim().split_once(' ').unwrap_or((text.trim(), "{}"));
    let arguments: serde_json::Value =
        serde_json::from_str(arguments).map_err(|error| format!("the arguments are not JSON: {error}"))?;
    match (tool, arguments.is_object()) {
        ("", _) => Err("it is empty".to_owned()),
        (_, false) => Err("the arguments are not a JSON object".to_owned()),
        (tool, true) => Ok(ToolCall { tool: tool.to_owned(), arguments }),
    }
}
