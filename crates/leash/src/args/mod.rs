//! The command line as typed. The command's file converts it to settings.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use leash_model::containment::Containment;
use leash_tree::contain::caps::CpuCap;

use crate::output::terminal::ColorWhen;

mod adopt;
mod attach;
mod check;
mod connect;
mod guard;
mod logs;
mod orphans;
mod serve;
mod session_name;
mod values;
pub(crate) use adopt::{Adopt, Release};
pub(crate) use attach::{Attach, AttachTarget};
pub(crate) use check::{Check, CheckRole};
pub(crate) use connect::{Connect, TransportArg};
pub(crate) use guard::GuardArgs;
pub(crate) use logs::{Logs, StatusArgs};
pub(crate) use orphans::{Reap, Watch, Why, WhyTarget};
pub(crate) use serve::{ControlArgs, HttpTransportArg, LocalUsersArg, Serve, SessionOwnerArg, SingleServer};
pub(crate) use session_name::{SessionName, Unresolved};
pub(crate) use values::{OwnerArg, Pair};

/// The end of `leash --help`.
const AFTER_HELP: &str = "Exit codes and JSON of every command:\n\
    https://github.com/mcp-leash/leash/blob/main/docs/reference/commands.md";

/// Nothing outlives its owner: the lifecycle guarantee for MCP servers and sessions
#[derive(Debug, Parser)]
#[command(name = "leash", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Use colours: auto (on a terminal), always or never [default: auto]
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) color: ColorWhen,
}

/// The parser of `leash run` alone. `run` is started for every server, and the parser of all commands needs half a
/// millisecond and 250 kB. It can't print a page: whoever asks for one needs [`Cli`].
pub(crate) fn run_parser() -> clap::Command {
    let run = Run::augment_args(clap::Command::new("run"));
    Common::augment_args(clap::Command::new("leash")).subcommand_required(true).subcommand(run)
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Connect(Box<Connect>),
    Attach(Box<Attach>),
    Guard(Box<GuardArgs>),
    Serve(Box<Serve>),
    #[command(visible_aliases = ["ls", "list"])]
    Ps(Ps),
    Top(Top),
    Status(StatusArgs),
    Why(Why),
    Reap(Box<Reap>),
    Watch(Box<Watch>),
    #[command(visible_aliases = ["stop", "kill"])]
    End(End),
    Logs(Logs),
    History(History),
    Adopt(Adopt),
    Release(Release),
    Check(Box<Check>),
    Doctor(Doctor),
    Upgrade(Upgrade),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
}

/// Run a stdio server; its whole process tree dies with its owner
///
/// The server gets the host's own stdin, stdout and stderr: leash touches no byte. When the owner is gone (the host
/// closed stdin, exited, crashed or was killed; the terminal was closed; leash was told to end or was killed), leash
/// ends every process that the server started: end of input, wait, SIGTERM to all, wait, SIGKILL to all, and a proof
/// that nothing is left.
///
/// Variables and leash.json give defaults for the options: --max-age is LEASH_MAX_AGE, or "maxAge" of the "run" object in
/// $XDG_CONFIG_HOME/leash/leash.json. `leash doctor -v` shows those in force.
///
/// The exit code is the server's own, or 128 + n after signal n; 125 leash failed, 126 cannot execute, 127 not found.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Use exactly this containment: sealed, unit, leaf, reaper or group [default: the best that works]
    #[arg(long, value_name = "NAME")]
    pub(crate) contain: Option<Containment>,
    /// Refuse to start with less than this containment
    #[arg(long, value_name = "NAME", conflicts_with = "contain")]
    pub(crate) require: Option<Containment>,
    /// Time between the steps of an end (end of input, SIGTERM, SIGKILL); 0 kills at once
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// The owners of the server: parent, ancestor, stdin, tty, pid:N or none; may be repeated
    ///
    /// The default is the parent, the nearest ancestor that is not a wrapper (sh -c, npx, env...), the other end of
    /// stdin, and the terminal if the parent is in its session. Owners given here replace parent, ancestor and
    /// terminal; stdin stays watched, because its end is how MCP ends a server. `none` watches nothing: the session
    /// ends when the server does, by `leash end`, or by a signal.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<OwnerArg>,
    /// End the server when it has lived this long
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
    /// A name for listings [default: that of the package, script, module, image or program]
    #[arg(long, value_parser = values::short)]
    pub(crate) name: Option<String>,
    /// A label for listings and receipts; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = values::label)]
    pub(crate) labels: Vec<Pair>,
    /// Leave programs of this name alive (adb, gpg-agent...); may be repeated
    #[arg(long, value_name = "NAME", value_parser = values::short)]
    pub(crate) spare: Vec<String>,
    /// Most memory for the whole tree, such as 512M or 2G; needs a cgroup with the memory controller
    #[arg(long, value_name = "SIZE", value_parser = leash_tree::contain::caps::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Most processes and threads in the tree; needs a cgroup with the pids controller
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,
    /// Processor time for the whole tree: 50% of one processor, or a weight such as 20 (others have 100); needs a
    /// cgroup with the cpu controller
    #[arg(long, value_name = "SHARE", value_parser = leash_tree::contain::caps::parse_cpu)]
    pub(crate) cpu: Option<CpuCap>,
    /// Most memory for all trees of the session together; over it, the largest tree ends. Needs a systemd user manager
    ///
    /// The budget counts every tree of the session that is started with a --session-memory, --session-pids or
    /// --session-cpu; the last start sets the limits. A budget for all of leash is `budget` in leash.json.
    #[arg(long, value_name = "SIZE", value_parser = leash_tree::contain::caps::parse_bytes)]
    pub(crate) session_memory: Option<u64>,
    /// Most processes and threads of the session, with one keeper for each tree; as --session-memory
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) session_pids: Option<u64>,
    /// Processor time of the session, written as for --cpu; as --session-memory
    #[arg(long, value_name = "SHARE", value_parser = leash_tree::contain::caps::parse_cpu)]
    pub(crate) session_cpu: Option<CpuCap>,
    /// Let `leash watch --pressure` end the server when memory is short and it has been idle this long
    ///
    /// Idle means that no process of the server used processor time, read or wrote a byte. A call that only waits looks
    /// the same, so leave this out for servers with such calls.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) pressure_stop: Option<Duration>,
    /// Start the server in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable in the server's environment; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// Write one line of JSON to this descriptor, a pipe, when the server has started, and one with the receipt at the end
    ///
    /// For programs that start leash. The lines are {"started": {"name", "pid", "containment"}} or {"failed": {"message",
    /// "hint", "why"}}, and {"ended": RECEIPT}. The server does not inherit the descriptor.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) report_fd: Option<i32>,
    /// Keep a copy of the server's stderr for `leash logs`; the host gets every byte all the same
    ///
    /// The server's stderr is then a pipe of leash and not the host's own. The server waits for a host that does not read,
    /// as it would without leash; it does not notice a full disk or a killed leash. The default is LEASH_RUN_LOG, because
    /// LEASH_LOG means -v.
    #[arg(long)]
    pub(crate) log: bool,
    /// Say on stderr what happens
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The server and its arguments; options of leash come before it
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// List the living MCP servers, under leash or not, and what keeps each of them alive
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Only this session, by its id or run; an id that leash made may be shortened to a unique beginning
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Only the sessions of leash, not the servers that other programs started
    #[arg(long)]
    pub(crate) leashed: bool,
    /// Draw each session's process tree
    #[arg(long)]
    pub(crate) tree: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Stay, and show every change; with --json one document a line: a snapshot, then the changes
    #[arg(long, conflicts_with_all = ["session", "tree", "verbose"])]
    pub(crate) watch: bool,
    /// Also show what each containment does not cover, and why leash uses no better one
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Watch sessions and servers live, and end them: a screen for the terminal
///
/// Shows clients, their sessions and servers, what each uses and what keeps it alive, and below the servers that other
/// programs started. Keys: arrows or j and k move, Enter shows why a server is alive, l its stderr, / filters, t shows processes, s
/// sorts, e ends a session, r ends an orphan, ? helps, q quits. Nothing is ended before you have confirmed it.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only show: no key ends anything
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Only the sessions of leash, not the servers that other programs started
    #[arg(long)]
    pub(crate) leashed: bool,
}

/// End sessions now, wait until they are gone, and print their receipts
///
/// All members of a session end at the same time, wherever they were started: servers under `leash run`, connections
/// of `leash connect`, and what a `leash serve` of the same user holds for it. A member that joins meanwhile is ended,
/// too. There is one receipt for each session. Sessions of other users are neither seen nor ended.
///
/// The exit code is 0 when everything is proved to be gone, 1 when something is left or a session is not known. It is
/// also 0 when --match, --all or --hook find nothing to end.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["sessions", "matching", "all", "hook"]))]
pub(crate) struct End {
    /// Sessions by id or by run; an id that leash made may be shortened to a unique beginning; {VARIABLE} as in `leash
    /// run --session`
    #[arg(value_name = "SESSION", value_parser = SessionName::parse_word)]
    pub(crate) sessions: Vec<SessionName>,
    /// Sessions with a member that has this label; * matches any text. May be repeated, then all must match
    #[arg(long = "match", value_name = "LABEL=VALUE", value_parser = values::label)]
    pub(crate) matching: Vec<Pair>,
    /// All sessions of this user
    #[arg(long)]
    pub(crate) all: bool,
    /// The session that a host's hook names on stdin, as JSON with a `session_id`
    ///
    /// For the SessionEnd hook of Claude Code and the like. leash ends nothing when the host only continues with
    /// another conversation (`reason` is clear or resume): the host keeps its servers.
    #[arg(long)]
    pub(crate) hook: bool,
    /// Kill everything at once, without a grace
    #[arg(long)]
    pub(crate) force: bool,
    /// The control socket of `leash serve` [default: control.sock in the runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what leash ended, why and how
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Only this session, with all its members, by its id or a unique beginning of it
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Only ends of this last time, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) since: Option<Duration>,
    /// Only sessions of a gateway's client with this name or PID; * matches any text
    #[arg(long, value_name = "NAME|PID", value_parser = values::short)]
    pub(crate) client: Option<String>,
    /// Only ends after which something was left
    #[arg(long)]
    pub(crate) left: bool,
    /// Number of newest receipts to show [default: 20; all for one session or with --since]
    #[arg(short = 'n', long, value_name = "COUNT", visible_alias = "limit")]
    pub(crate) lines: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show which containments work on this machine, and why the others do not
///
/// leash tries each containment with a real process tree, and writes a file where it will write. It leaves nothing
/// behind, not even a receipt. The exit code is 0 when leash can keep its promise here (reaper or better, and
/// everything else is fine), else 1.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Show everything: all of each text, the defaults of `leash run` and where they come from
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how leash was installed, and the command that upgrades it
///
/// leash never changes its own file: the package manager that installed it does. This command only names the command
/// of that package manager, and does not use the network.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// See it work: a host is killed, with and without leash
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Which part of the demonstration to play (used by leash itself)
    #[arg(long, hide = true)]
    pub(crate) part: Option<DemoPart>,
    /// Where the parts of the demonstration meet (used by leash itself)
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Roles that leash plays in its own demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoPart {
    /// A host that starts its server as most hosts do.
    Host,
    /// The same with `leash run --` in front.
    LeashedHost,
    /// The server: ignores the end of its stdin and starts the three below.
    Server,
    /// An ordinary child.
    Child,
    /// A helper in its own session.
    Helper,
    /// Starts the daemon and exits at once.
    Detacher,
    /// The process that the detacher started.
    Daemon,
}

/// Print a completion script for a shell
///
/// The script asks leash for sessions that are alive, for servers and for clients. Load it when the shell starts, so that
/// it always fits this leash: `source <(leash completions bash)`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page (roff), or write all pages to a directory
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write leash.1 and a page for each command here
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn run(words: &[&str]) -> Run {
        let cli = Cli::try_parse_from(["leash", "run"].iter().chain(words)).expect("a command line");
        let Command::Run(run) = cli.command else { panic!("it is `run`") };
        *run
    }

    /// As with env, nice and timeout: the first word that is no option of leash begins the server's command line.
    #[test]
    fn a_server_needs_no_dashes_in_front() {
        for (words, command) in [
            (&["--", "npx", "-y", "x"][..], &["npx", "-y", "x"][..]),
            (&["npx", "-y", "x"], &["npx", "-y", "x"]),
            (&["--grace", "1s", "-v", "npx", "-v", "--grace", "5s"], &["npx", "-v", "--grace", "5s"]),
            (&["--grace=1s", "-v", "--", "-v"], &["-v"]),
            (&["npx", "--", "x"], &["npx", "--", "x"]),
            (&["--", "npx", "--", "x"], &["npx", "--", "x"]),
            (&["--", "--", "x"], &["--", "x"]),
            (&["npx", "--help"], &["npx", "--help"]),
        ] {
            assert_eq!(run(words).command, command, "{words:?}");
        }
        assert_eq!(run(&["--grace", "1s", "npx", "--grace", "5s"]).grace, Duration::from_secs(1));
        for mistake in [&["--gracee", "1s", "npx"][..], &["-x", "npx"], &["--grace", "npx"], &[], &["--"]] {
            let words = ["leash", "run"].iter().chain(mistake);
            assert!(Cli::try_parse_from(words).is_err(), "{mistake:?}");
        }
    }

    /// `leash_orphans` finds the server's command after the options of `leash run`, and knows no other without a value.
    #[test]
    fn every_option_of_run_but_log_and_verbose_has_a_value() {
        let command = Cli::command();
        let run = command.find_subcommand("run").expect("it is a command");
        let flags = run.get_arguments().filter(|arg| !arg.is_positional() && !arg.get_action().takes_values());
        assert_eq!(flags.map(|arg| arg.get_id().as_str()).collect::<Vec<_>>(), ["log", "verbose"]);
    }
}
