//! `leash why`, `leash reap` and `leash watch`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leash_model::pressure::StallPercent;
use leash_tree::contain::caps;

use super::values;

/// Show which process holds a server, the evidence, and what would end it
///
/// PID may be any process of the server, or any process at all. SESSION is the id of a session with one server or of a
/// run, or its beginning. NAME is the name of a server, under leash or not.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The process, the session or the server
    #[arg(value_name = "PID|SESSION|NAME", value_parser = WhyTarget::parse)]
    pub(crate) target: WhyTarget,
    /// Also read the servers of the project in this directory; may be repeated
    ///
    /// leash finds the projects in which your processes work by itself. The servers of a named project are certain also
    /// for processes that work elsewhere.
    #[arg(long = "project", value_name = "DIR")]
    pub(crate) projects: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subject of `leash why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhyTarget {
    /// Any process.
    Process(i32),
    /// The id of a run or a session, or its beginning, or the name of a server.
    Word(String),
}

impl WhyTarget {
    /// A number is a process.
    fn parse(text: &str) -> Result<WhyTarget, String> {
        if !text.chars().all(|letter| letter.is_ascii_digit()) {
            return values::short(text).map(WhyTarget::Word);
        }
        let pid = text.parse().ok().filter(|pid| *pid > 0);
        pid.map(WhyTarget::Process).ok_or_else(|| "it is neither a PID nor an id".to_owned())
    }
}

/// End orphaned MCP servers, also those that other programs started
///
/// Shows which servers would be ended, and the memory that this would free; no process is touched without --yes. A
/// server is an orphan when no process outside of its own tree has the other ends of its stdin and stdout, or a TCP
/// connection to it. A process that could not be read counts as a holder. Right before the first signal leash opens a
/// pidfd of each process and judges the server again.
///
/// These servers are in no containment of leash, so leash can't prove that nothing is left: after the last signal it
/// searches all processes again, by session, process group, stdin, stdout, cgroup and descent, until nothing new
/// appears. The exit code is 0 when leash finds no process of the ended servers any more, else 1.
#[derive(Debug, Args)]
pub(crate) struct Reap {
    /// Only the servers of these processes, also if they are likely orphans
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pids: Vec<i32>,
    /// End them
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also end the server of this process if it is likely an orphan; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) likely: Vec<i32>,
    /// Also end stale hosts (terminal closed, or in swap for long), with everything that they started
    #[arg(long)]
    pub(crate) stale: bool,
    /// Time between SIGTERM and SIGKILL; 0 kills at once
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// How long the pipes of a server must be closed while its parent lives: the parent may be about to end it
    /// properly
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration)]
    pub(crate) settle: Duration,
    /// Also read the servers of the project in this directory; may be repeated
    ///
    /// leash finds the projects in which your processes work by itself. The servers of a named project are certain also
    /// for processes that work elsewhere.
    #[arg(long = "project", value_name = "DIR")]
    pub(crate) projects: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// End orphans as they appear
///
/// leash ends a server only when two scans in a row have proved it an orphan, and only when it is old enough. The exit
/// of a host starts a scan at once; otherwise leash scans every --interval.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Scan twice, end proved orphans, and exit: for cron; with --install, for a timer of systemd
    #[arg(long, conflicts_with_all = ["uninstall", "pressure"])]
    pub(crate) once: bool,
    /// Time between scans when nothing happens
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Leave younger servers alone
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub(crate) min_age: Duration,
    /// How long the pipes of a server must be closed while its parent lives
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::duration)]
    pub(crate) settle: Duration,
    /// Time between SIGTERM and SIGKILL; 0 kills at once
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// While all servers together use more than this, end the largest orphans first; only orphans are ended
    #[arg(long, value_name = "SIZE", value_parser = caps::parse_bytes)]
    pub(crate) max_memory: Option<u64>,
    /// When memory is low, end orphans at once; when it is short, also idle servers that may be stopped
    ///
    /// Memory is low when less than a quarter of it is available. leash looks once a second. Then it ends proved orphans
    /// of any age. Memory is short when, in addition, some process had to wait for memory in PERCENT of the last ten
    /// seconds (10 by default) and of the last second. Then, if there are no orphans, leash ends one idle server started
    /// with `leash run --pressure-stop`, the largest first, and looks again.
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "10", value_parser = StallPercent::parse)]
    pub(crate) pressure: Option<StallPercent>,
    /// Write and enable a systemd user unit that runs this; with --once, a timer that does so every --interval
    #[arg(long, conflicts_with = "uninstall")]
    pub(crate) install: bool,
    /// Stop and remove that unit
    #[arg(long)]
    pub(crate) uninstall: bool,
}
