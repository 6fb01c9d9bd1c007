//! `zoo`: misbehaving stdio servers, and hosts to start them. For tests only.

#![expect(clippy::disallowed_methods, reason = "it plays hosts and servers, which start processes without a leash")]

mod attack;
mod clients;
mod env;
mod escapes;
mod hosts;
mod http_client;
mod mcp;
mod namespaces;
mod puppet;
mod roll_call;
mod sys;
mod trees;
mod under;
mod write;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use sys::Answer;

const USAGE: &str = "\
usage: zoo tree KIND [--size N] --census FIFO [--one-cpu] [--memory MIB] [--to CGROUP] [--attack KIND]
                     [--into PID [--own-session]] [--mcp | --puppet SOCKET]
       zoo echo | cat | env | idle | exit CODE | signal-self N | misuse nothing|memory|block|descriptor
       zoo as-root CMD...
       zoo host [--stdin pipe|socketpair|devnull] [--own-group] [--no-read] [--shrug N] -- CMD...
       zoo http-client hold|exit|obey|leave|die URL...
       zoo trace PID START
       zoo client ADDR [--connections N] [--fork N] [--name NAME] [--device NAME]
       zoo ns [--user] [--pid] [--proc | --hidepid] [--net] [--init] [--pid-max N] [--tmpfs DIR] [--fill DIR] -- CMD...
";

/// The exit code of a program that cannot do what its arguments ask for. No server of the zoo exits with it otherwise.
const FAILED: u8 = 99;

fn main() -> ExitCode {
    match under::words().map_or_else(obey, under::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "zoo: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Runs the role that the arguments name.
fn obey() -> io::Result<()> {
    let mut words: VecDeque<OsString> = std::env::args_os().skip(1).collect();
    let command = words.pop_front().unwrap_or_default();
    match command.to_str() {
        Some("tree") => tree(words),
        Some("echo") => copy(Copy::ByLine),
        Some("cat") => copy(Copy::ByBlock),
        Some("env") => env::print(),
        Some("idle") => loop {
            rustix::event::pause();
        },
        Some("exit") => number(words.pop_front()).map(|code| sys::exit_now(code)),
        Some("signal-self") => number(words.pop_front()).map(sys::raise),
        Some("as-root") => as_root(words),
        Some("misuse") => misuse(words.pop_front()),
        Some("host") => hosts::Order::parse(words).and_then(hosts::run),
        Some("http-client") => http_client::run(words),
        Some("client") => clients::Order::parse(words).and_then(|order| clients::run(&order)),
        Some("trace") => escapes::trace(number(words.pop_front())?, number(words.pop_front())?),
        Some("ns") => namespaces::Order::parse(words).and_then(namespaces::run),
        _ => Err(wrong("no such command")),
    }
}

/// Becomes root for good, which a program with the setuid bit may do (`chmod u+s`), and executes another program.
fn as_root(mut words: VecDeque<OsString>) -> io::Result<()> {
    rustix::thread::set_thread_uid(rustix::process::Uid::ROOT)?;
    let program = words.pop_front().ok_or_else(|| wrong("a command is missing"))?;
    Err(std::process::Command::new(program).args(words).exec())
}

/// Commits one memory or descriptor error, for the tools that must detect it.
fn misuse(what: Option<OsString>) -> io::Result<()> {
    match what.as_deref().and_then(|what| what.to_str()) {
        Some("nothing") => Ok(()),
        Some("memory") => sys::write_uninitialised(&std::fs::File::options().write(true).open("/dev/null")?),
        Some("block") => {
            std::mem::forget(std::hint::black_box(vec![1u8; 100]));
            Ok(())
        }
        Some("descriptor") => {
            std::mem::forget(std::fs::File::open("/dev/null")?);
            Ok(())
        }
        _ => Err(wrong("no such misuse")),
    }
}

fn tree(mut words: VecDeque<OsString>) -> io::Result<()> {
    let kind =
        words.pop_front().and_then(|word| trees::Kind::parse(word.to_str()?)).ok_or_else(|| wrong("no such tree"))?;
    let mut order = trees::Order {
        kind,
        size: None,
        census: Default::default(),
        one_cpu: false,
        memory: 0,
        to: None,
        attack: None,
        into: None,
        own_session: false,
        mcp: false,
        puppet: None,
    };
    while let Some(word) = words.pop_front() {
        match word.to_str() {
            Some("--size") => order.size = Some(number(words.pop_front())?),
            Some("--census") => order.census = value(&mut words)?.into(),
            Some("--attack") => {
                let kind = value(&mut words)?;
                let attack = kind.to_str().and_then(attack::Attack::parse);
                order.attack = Some(attack.ok_or_else(|| wrong("no such attack"))?);
            }
            Some("--mcp") => order.mcp = true,
            Some("--puppet") => order.puppet = Some(value(&mut words)?.into()),
            Some("--one-cpu") => order.one_cpu = true,
            Some("--memory") => order.memory = number(words.pop_front())?,
            Some("--to") => order.to = Some(value(&mut words)?.into()),
            Some("--into") => order.into = Some(number(words.pop_front())?),
            Some("--own-session") => order.own_session = true,
            _ => return Err(wrong("no such option of tree")),
        }
    }
    trees::run(&order)
}

enum Copy {
    /// Writes each chunk at once: for measuring round trips.
    ByLine,
    /// Writes large blocks: for measuring and checking throughput.
    ByBlock,
}

/// Copies stdin to stdout until the end of input.
fn copy(how: Copy) -> io::Result<()> {
    sys::answer(libc::SIGPIPE, Answer::Default);
    let size = match how {
        Copy::ByLine => 8 << 10,
        Copy::ByBlock => 1 << 20,
    };
    let mut buffer = vec![0; size];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer[..]) {
            Ok(0) => return Ok(()),
            Ok(got) => write::write_all(&rustix::stdio::stdout(), &buffer[..got])?,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn value(words: &mut VecDeque<OsString>) -> io::Result<OsString> {
    words.pop_front().ok_or_else(|| wrong("an option lacks its value"))
}

fn number<N: std::str::FromStr>(word: Option<OsString>) -> io::Result<N> {
    word.and_then(|word| word.to_str()?.parse().ok()).ok_or_else(|| wrong("a number is missing"))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}\n{USAGE}"))
}
