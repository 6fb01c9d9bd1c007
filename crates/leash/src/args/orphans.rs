//! `leash why`, `leash reap` and `leash watch`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leash_tree::contain::caps;

use super::values;

/// Say who holds a server, how that is known, and what would end it
///
/// PID may be any process of the server, or any process at all.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The process
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
    /// Also know the servers of the project in this directory; may be repeated [default: the working directory]
    #[arg(long = "project", value_name = "DIR")]
    pub(crate) projects: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// End MCP servers that nobody holds any more, whoever started them
///
/// Shows what would be ended, and the memory that would come back; nothing is touched without --yes. A server is an orphan when nobody
/// outside of its own process tree has the other ends of its stdin and stdout, or a TCP connection to it. What could not be read counts
/// as held. Right before the first signal each server is looked at again while it is held.
///
/// The servers of others are in no containment of leash, so that they are gone is never proved: after the last signal all processes are
/// looked at again, by session, process group, stdin, stdout, cgroup and descent, until nothing new appears. The exit code is 0 when no
/// process of what was to be ended is found any more, else 1.
#[derive(Debug, Args)]
pub(crate) struct Reap {
    /// End them
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also the server of this process, if it is an orphan by all that could be seen; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) likely: Vec<i32>,
    /// Also hosts that nobody can use any more, with all that they have started
    #[arg(long)]
    pub(crate) stale: bool,
    /// Time between SIGTERM and SIGKILL; 0 kills at once
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// How long nobody must have spoken to a server whose parent lives: it may be about to end it properly
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration)]
    pub(crate) settle: Duration,
    /// Also know the servers of the project in this directory; may be repeated [default: the working directory]
    #[arg(long = "project", value_name = "DIR")]
    pub(crate) projects: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// End orphans as they appear
///
/// Only what two looks in a row have proved is ended, and only when it is old enough. The end of a host is noticed at once; otherwise
/// the machine is looked at every --interval.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Look twice, end what is proved, and exit: for cron
    #[arg(long, conflicts_with_all = ["install", "uninstall"])]
    pub(crate) once: bool,
    /// How often to look when nothing happens
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Leave younger servers alone
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub(crate) min_age: Duration,
    /// How long nobody must have spoken to a server whose parent lives
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration)]
    pub(crate) settle: Duration,
    /// Time between SIGTERM and SIGKILL; 0 kills at once
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// While all servers together use more than this, end the largest orphans first; nothing else is ended for it
    #[arg(long, value_name = "SIZE", value_parser = caps::parse_bytes)]
    pub(crate) max_memory: Option<u64>,
    /// Write and enable a systemd user unit that runs this
    #[arg(long, conflicts_with = "uninstall")]
    pub(crate) install: bool,
    /// Remove it
    #[arg(long)]
    pub(crate) uninstall: bool,
}
