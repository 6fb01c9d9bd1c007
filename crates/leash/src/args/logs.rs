//! `leash logs` and `leash status`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// Show what servers wrote to stderr, each line with its time and the server's name
///
/// leash keeps the stderr of every server behind `leash serve`, and of a server under `leash run --log`: the last 1 MiB of
/// each run, 64 MiB of all, as long as the receipts of the same time are kept. Control characters are escaped; --json has
/// the text as it was.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Only this session or server: an id, a run, a unique beginning of one, or a server's name
    #[arg(value_name = "SESSION|SERVER")]
    pub(crate) of: Option<String>,
    /// Go on with new lines until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only lines of this last time, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) since: Option<Duration>,
    /// Number of newest lines to show [default: all]
    #[arg(short = 'n', long, value_name = "COUNT", visible_alias = "limit")]
    pub(crate) lines: Option<usize>,
    /// Print JSON, one object on each line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the gateway: its servers with their URLs, its clients, and what went wrong last
///
/// Asks the `leash serve` of this user, through its control socket; with --url, one that has its control API on an address
/// (--control-listen).
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The control socket of `leash serve` [default: control.sock in the runtime directory]
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub(crate) control: Option<PathBuf>,
    /// The address of another gateway's control API, as in http://127.0.0.1:5328
    #[arg(long, value_name = "URL", requires = "token_env")]
    pub(crate) url: Option<String>,
    /// The variable with the token of that control API
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    pub(crate) token_env: Option<String>,
    /// Print a link to the page of the gateway, and open it in a browser
    ///
    /// The link works once, for a minute, for this user on this machine. Without a display, leash prints it only.
    #[arg(long, conflicts_with = "json")]
    pub(crate) open: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
