//! `leash demo`: a host is killed, first without leash, then with it. leash runs all parts itself.
//!
//! The list of living processes does not come from leash: every process of the sample server holds the write end of a
//! FIFO, and the reader sees a hang-up when the last one is dead.
#![expect(clippy::disallowed_methods, reason = "the demonstration starts a host without leash, to show the difference")]

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum as _;
use leash_model::clock::{Moment, timeout_until};
use leash_model::duration;
use leash_model::error::at;
use leash_model::receipt::Receipt;
use leash_tree::ledger::receipts;
use leash_tree::platform::identity::{self, HeldProcess};
use leash_tree::platform::poll;
use leash_tree::platform::proc::Proc;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::args::{Demo, DemoPart};
use crate::exit_code;
use crate::output::message;
use crate::output::printer::{Printer, span};
use crate::output::table::{Column, table};
use crate::output::text::Text;
use crate::output::waiting::Waiting;

/// The processes of the sample server, in the order of the table.
const PROCESSES: [(&str, &str); 4] = [
    ("server", "ignores the end of its stdin"),
    ("child", "an ordinary child"),
    ("helper", "called setsid"),
    ("daemon", "double fork and setsid"),
];

const COLUMNS: [Column; 4] = [
    Column::new("PROCESS"),
    Column::new("WHAT IT DID").cut(16),
    Column::new("WITHOUT LEASH").verdict(),
    Column::new("WITH LEASH").verdict(),
];

/// The FIFO that every process of the sample holds open.
const CENSUS: &str = "census";
/// The FIFO that tells the processes to exit.
const LIFELINE: &str = "lifeline";

/// The time for the sample to start; a machine that swaps is slow.
const START_TIME: Duration = Duration::from_secs(20);
/// The time to watch a tree without leash. No process of it exits.
const SETTLE: Duration = Duration::from_secs(1);
/// The time limit for a tree with leash; its own graces are 500 ms each.
const GONE: Duration = Duration::from_secs(20);

pub(crate) fn demo(args: &Demo) -> u8 {
    let printer = Printer::new(true);
    let result = match (args.part, &args.dir) {
        (Some(part), Some(dir)) => run_part(part, dir),
        (Some(_), None) => Err(io::Error::other("--part needs --dir")),
        (None, _) => return show(printer),
    };
    result.map_or(exit_code::LEASH_FAILED, |()| exit_code::OK)
}

/// Runs the whole demonstration.
fn show(printer: Printer) -> u8 {
    let results = DemoDir::create().and_then(|dir| {
        let without = dir.kill_host(printer, DemoPart::Host)?;
        let with = dir.kill_host(printer, DemoPart::LeashedHost)?;
        let receipts = dir.receipts()?;
        Ok((without, with, receipts))
    });
    let (without, with, receipts) = match results {
        Ok(results) => results,
        Err(error) => {
            printer.error_text(
                format!("the demonstration failed: {error}"),
                Some("`leash doctor` says what this machine offers"),
            );
            return exit_code::LEASH_FAILED;
        }
    };
    let word = |alive: bool| if alive { "ALIVE" } else { "gone" }.to_owned();
    let rows: Vec<Vec<String>> = PROCESSES
        .iter()
        .enumerate()
        .map(|(index, (name, what))| {
            vec![(*name).to_owned(), (*what).to_owned(), word(without.alive[index]), word(with.alive[index])]
        })
        .collect();
    printer.say("");
    printer.say("After the host was killed:");
    printer.data(&table(&COLUMNS, &rows));
    for receipt in &receipts {
        printer.say("");
        printer.say(Text::new("receipt: ").and(message::receipt_line(receipt)));
    }
    let (took, is_left) = (span(with.took_ms), with.alive.contains(&true));
    printer.say(match is_left {
        true => format!("With leash, a process was left {took} after the host was killed."),
        false => format!("With leash, every process was gone {took} after the host was killed."),
    });
    printer.say("leash has now ended the processes that were left.");
    if is_left { exit_code::NOT_ALL } else { exit_code::OK }
}

/// The result of killing a host.
struct DemoResult {
    /// True for each process of the sample server that is alive.
    alive: Vec<bool>,
    took_ms: u64,
}

/// A private directory that the processes share.
struct DemoDir {
    dir: PathBuf,
    proc: Proc,
    /// The processes exit when this end is closed: by us at the end, by the kernel if we are interrupted.
    _lifeline: File,
}

impl DemoDir {
    fn create() -> io::Result<DemoDir> {
        let proc = Proc::own().map_err(io::Error::other)?;
        let dir = env::temp_dir().join(format!("leash-demo-{}", leash_model::id::random()));
        fs::DirBuilder::new().mode(0o700).create(&dir).map_err(at(&dir))?;
        make_fifo(&dir.join(LIFELINE))?;
        // A FIFO opens for writing once it has a reader.
        let _reader = read_end(&dir.join(LIFELINE))?;
        let lifeline = File::options().write(true).open(dir.join(LIFELINE))?;
        Ok(DemoDir { dir, proc, _lifeline: lifeline })
    }

    /// Starts a host with its server, kills the host, and finds the processes that are left.
    fn kill_host(&self, printer: Printer, part: DemoPart) -> io::Result<DemoResult> {
        let census = self.dir.join(CENSUS);
        make_fifo(&census)?;
        let mut reader = read_end(&census)?;
        let mut host = self.host(part)?;
        let processes = self.processes(&mut reader);
        // The host is our own child and has not been waited for, so its PID can't be reused.
        let killed = Moment::now();
        host.kill()?;
        host.wait()?;
        let processes = processes?;
        let pids: Vec<String> = processes.iter().map(|held| held.id.pid.to_string()).collect();
        printer.progress(
            "Killed",
            format!(
                "the host{}; its server's processes: {}",
                if part == DemoPart::Host { "" } else { " (server behind `leash run --`)" },
                pids.join(", ")
            ),
        );
        let patience = if part == DemoPart::Host { SETTLE } else { GONE };
        let what = match part {
            DemoPart::Host => "for processes that nothing ends",
            _ => "for every process to be gone",
        };
        let waiting = Waiting::begin(what, Some(patience));
        let gone = hung_up(&reader, killed + patience);
        drop(waiting);
        let took_ms = duration::as_ms(Moment::now().since(killed));
        let alive: Vec<bool> = processes.iter().map(|held| !gone && identity::is_alive(held.id, &self.proc)).collect();
        printer.progress(
            if gone { "Gone" } else { "Left" },
            format!("{} of {} processes alive", alive.iter().filter(|alive| **alive).count(), alive.len()),
        );
        self.clean_up(&processes, &reader)?;
        fs::remove_file(census)?;
        Ok(DemoResult { alive, took_ms })
    }

    /// Waits for the receipt: it is written right after the tree's end, which the FIFO shows a moment earlier.
    fn receipts(&self) -> io::Result<Vec<Receipt>> {
        let give_up = Moment::now() + GONE;
        loop {
            let (receipts, _) = receipts::read(&self.dir.join("leash/receipts.jsonl"))?;
            let ledger_empty = fs::read_dir(self.dir.join("run/sessions"))?.next().is_none();
            if (ledger_empty && !receipts.is_empty()) || Moment::now() >= give_up {
                return Ok(receipts);
            }
            poll::pause(Duration::from_millis(2));
        }
    }

    fn host(&self, part: DemoPart) -> io::Result<Child> {
        let mut command = part_command(part, &self.dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .env("LEASH_RUNTIME_DIR", self.dir.join("run"))
            .env("XDG_STATE_HOME", &self.dir);
        command.spawn()
    }

    /// Reads the PIDs that the processes report, and opens a pidfd for each.
    fn processes(&self, reader: &mut File) -> io::Result<Vec<HeldProcess>> {
        let give_up = Moment::now() + START_TIME;
        let mut text = String::new();
        while text.lines().count() < PROCESSES.len() || !text.ends_with('\n') {
            wait(reader, give_up)?;
            let mut bytes = [0; 512];
            match reader.read(&mut bytes) {
                Ok(read) => text.push_str(&String::from_utf8_lossy(&bytes[..read])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let pid_of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let missing = |name: &str| io::Error::other(format!("the sample's {name} did not appear"));
        PROCESSES
            .iter()
            .map(|(name, _)| {
                pid_of(name).and_then(|pid| HeldProcess::open(&self.proc, pid)).ok_or_else(|| missing(name))
            })
            .collect()
    }

    /// Ends the processes that are left: only those that this demonstration started, through their pidfds.
    fn clean_up(&self, processes: &[HeldProcess], reader: &File) -> io::Result<()> {
        for held in processes {
            // An error means that it has exited, which is fine.
            let _ = held.signal(Signal::KILL);
        }
        if hung_up(reader, Moment::now() + GONE) {
            Ok(())
        } else {
            Err(io::Error::other("the sample could not be ended"))
        }
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until the FIFO is readable or has hung up.
fn wait(reader: &File, give_up: Moment) -> io::Result<PollFlags> {
    let mut fds = [PollFd::new(reader, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout_until(give_up, Moment::now()))) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) => Ok(fds[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
}

/// True if all write ends of the FIFO are closed before `give_up`.
fn hung_up(reader: &File, give_up: Moment) -> bool {
    loop {
        match wait(reader, give_up) {
            Ok(answer) if answer.contains(PollFlags::HUP) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

fn make_fifo(path: &Path) -> io::Result<()> {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
        .map_err(|errno| at(path)(errno.into()))
}

/// Opens a FIFO for reading without waiting for a writer.
fn read_end(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)
}

fn part_command(part: DemoPart, dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    command.args(["demo", "--part", &name, "--dir"]).arg(dir);
    command
}

/// Plays one role, in its own process.
fn run_part(part: DemoPart, dir: &Path) -> io::Result<()> {
    match part {
        DemoPart::Host => run_host(dir, part_command(DemoPart::Server, dir)),
        DemoPart::LeashedHost => {
            let server = part_command(DemoPart::Server, dir);
            let mut leashed = Command::new("/proc/self/exe");
            // The server's first word is /proc/self/exe, which after exec is still leash.
            leashed
                .args(["run", "--grace", "500ms", "--name", "sample", "--"])
                .arg(server.get_program())
                .args(server.get_args());
            run_host(dir, leashed)
        }
        DemoPart::Server => {
            let census = report_start(dir, "server")?;
            let _below = [DemoPart::Child, DemoPart::Helper, DemoPart::Detacher]
                .map(|part| part_command(part, dir).stdin(Stdio::null()).spawn());
            stay(dir, census)
        }
        DemoPart::Child => stay(dir, report_start(dir, "child")?),
        DemoPart::Helper => {
            rustix::process::setsid()?;
            stay(dir, report_start(dir, "helper")?)
        }
        DemoPart::Detacher => part_command(DemoPart::Daemon, dir).spawn().map(drop),
        DemoPart::Daemon => {
            rustix::process::setsid()?;
            stay(dir, report_start(dir, "daemon")?)
        }
    }
}

/// A host holds its server's pipes and waits.
fn run_host(dir: &Path, mut server: Command) -> io::Result<()> {
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    stay(dir, server)
}

/// Opens the FIFO and reports name and PID.
fn report_start(dir: &Path, name: &str) -> io::Result<File> {
    let mut census = File::options().write(true).open(dir.join(CENSUS))?;
    census.write_all(format!("{name} {}\n", rustix::process::getpid().as_raw_pid()).as_bytes())?;
    Ok(census)
}

/// Holds a value until the demonstration is over.
fn stay<T>(dir: &Path, _held: T) -> io::Result<()> {
    let lifeline = read_end(&dir.join(LIFELINE))?;
    while !hung_up(&lifeline, Moment::now() + START_TIME) {}
    Ok(())
}
