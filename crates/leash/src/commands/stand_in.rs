//! `leash check --part`: the stdio servers that leash provides to a host under test, and the process that gives a host
//! a terminal.
#![expect(
    clippy::disallowed_methods,
    reason = "a stand-in has a helper as real servers have: only the host shall end it"
)]

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leash_check::host::journal::{Journal, StandInEvent, StandInRole};
use leash_check::host::stand_in::serve_stdio;
use leash_check::http::{VISITOR_TOKEN, visit};
use leash_check::{StopSignals, take_terminal};
use leash_tree::platform::poll;
use leash_tree::tree::first_look::FirstLook;

use crate::args::{Check, CheckRole};
use crate::exit_code;
use crate::output::printer::Printer;

/// A stand-in that no process ends exits by itself after this time, for example if the check was killed.
const LONGEST: Duration = Duration::from_secs(600);

/// Plays one role until its end.
pub(crate) fn play(part: CheckRole, journal: &Path, args: &Check, first: FirstLook) -> u8 {
    let played = match part {
        CheckRole::TerminalStarter => return terminal_starter(journal, &args.command),
        CheckRole::TerminalHost => return terminal_host(&args.command),
        CheckRole::Visitor => return visitor(args, first),
        CheckRole::Polite => serve(StandInRole::Polite, journal),
        CheckRole::Deaf => start_helper(journal).and_then(|()| serve(StandInRole::Deaf, journal)).map(|()| stay()),
        CheckRole::Helper => Journal::at(journal).write(StandInRole::Helper, StandInEvent::Started).map(|()| stay()),
    };
    played.map_or(exit_code::LEASH_FAILED, |()| exit_code::OK)
}

fn serve(part: StandInRole, journal: &Path) -> io::Result<()> {
    let journal = Journal::at(journal);
    journal.write(part, StandInEvent::Started)?;
    serve_stdio(part, &journal, io::stdin().lock(), io::stdout().lock())
}

/// Starts a helper that has no pipe of the protocol.
fn start_helper(journal: &Path) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["check", "--part", "helper", "--journal"]).arg(journal);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Starts the host with the terminal and waits for it. The first process of a tree leads a group and so can't create a
/// session, but its child can.
fn terminal_starter(journal: &Path, host: &[OsString]) -> u8 {
    let mut command = Command::new("/proc/self/exe");
    command.args(["check", "--part", "terminal-host", "--journal"]).arg(journal).arg("--").args(host);
    match command.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit_code::LEASH_FAILED),
        Err(_) => exit_code::LEASH_FAILED,
    }
}

/// Executes the host in this process.
fn terminal_host(host: &[OsString]) -> u8 {
    let Some((program, words)) = host.split_first() else { return exit_code::USAGE };
    if let Err(error) = take_terminal() {
        Printer::new(false).error(&error, None);
        return exit_code::LEASH_FAILED;
    }
    Printer::new(false).error(&Command::new(program).args(words).exec(), None);
    exit_code::NOT_FOUND
}

/// Opens a session, reports its id, and exits. It must not exit earlier: Ctrl-C reaches every process of the terminal,
/// and the check has to know the id to end the session.
fn visitor(args: &Check, first: FirstLook) -> u8 {
    let (Ok(_signals), Some(url)) = (StopSignals::by_signal(first), &args.url) else { return exit_code::LEASH_FAILED };
    let token = std::env::var(VISITOR_TOKEN).ok();
    let tell = |session: &str| Printer::new(false).exact(format_args!("{session}\n"));
    if visit(url, token.as_deref(), args.ready, tell) { exit_code::OK } else { exit_code::NOT_ALL }
}

/// Ignores everything but a signal.
fn stay() {
    poll::pause(LONGEST);
}
