//! The report: hosts die one after another, their servers stay, and the kernel kills processes for lack of memory. On a
//! machine with 2 GB of memory and swap in memory, with and without leash. `cargo xtask box desktop replay` runs it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use testkit::census::Census;
use testkit::leash::{leash, zoo};
use testkit::{Scratch, or_skip, wait};

use crate::person::{Person, Running, in_the_box, signal};

/// Hosts that die one after another.
const HOSTS: usize = 8;

/// Servers of each host.
const SERVERS: usize = 10;

/// The memory of each server in MiB. The servers of one host fit into the machine easily, those of eight do not.
const EACH: usize = 40;

/// Emulated processors are slow, and slower without memory.
const PATIENCE: Duration = Duration::from_secs(300);

/// The machine has memory for one of these tests at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// A host: starts servers with pipes, as `claude` does, and waits to be killed. The box has a minimal Python.
const HOST: &str = r#"
import os, signal, sys
command = open(sys.argv[1]).read().split("\n")
for _ in range(int(sys.argv[2])):
    (stdin, _writes), (_reads, stdout) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.execv(command[0], command)
    os.close(stdin)
    os.close(stdout)
print(os.getpid(), flush=True)
while True: signal.pause()
"#;

/// The way in which hosts start their servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Plain,
    OnALeash,
}

/// The numbers of one replay.
#[derive(Debug, Default)]
struct Outcome {
    /// The hosts that could start all of their servers.
    hosts: usize,
    /// Processes that the kernel killed for lack of memory.
    oom_kills: u64,
    /// The least memory that was available after a host had started its servers, in MiB.
    least_available: u64,
    /// Servers that are alive at the end.
    left: usize,
}

/// A person with a server in the configuration of Claude Code.
struct Desktop {
    person: Person,
    census: Census,
    command: Vec<String>,
    scratch: Scratch,
}

impl Desktop {
    fn new() -> Desktop {
        let (person, scratch) = (Person::new(), Scratch::new());
        fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).expect("ours");
        let census = Census::create(scratch.join("census"));
        let (zoo, fifo, each) = (zoo().display().to_string(), census.path().display().to_string(), EACH.to_string());
        let command = [&zoo, "tree", "ignores-eof", "--memory", &each, "--census", &fifo].map(str::to_owned).to_vec();
        let config = Path::new("/home").join(&person.name).join(".claude.json");
        let servers = json!({ "mcpServers": { "large": { "command": command[0], "args": command[1..] } } });
        fs::write(&config, servers.to_string()).expect("a new home");
        chown(&config, Some(person.uid()), Some(person.uid())).expect("we are root");
        Desktop { person, census, command, scratch }
    }

    /// Starts hosts and kills each of them, one after another, until all are dead or the kernel kills a process.
    fn play(&mut self, start: Start) -> Outcome {
        let before = oom_kills();
        let mut outcome = Outcome { least_available: available(), ..Outcome::default() };
        while outcome.hosts < HOSTS && outcome.oom_kills == 0 {
            let (session, host) = self.host(start);
            let complete = wait::every(Duration::from_millis(200), PATIENCE, || {
                let is_complete = self.census.wait_all_ready(SERVERS, Duration::ZERO).is_ok();
                (is_complete || oom_kills() > before).then_some(is_complete)
            });
            outcome.hosts += usize::from(complete == Some(true));
            outcome.oom_kills = oom_kills() - before;
            outcome.least_available = outcome.least_available.min(available());
            self.census.forget();
            signal(host, Signal::KILL);
            drop(session);
        }
        outcome
    }

    /// A host in a new login session of the person: the session, and the pid of the host.
    fn host(&self, start: Start) -> (Running, i32) {
        let leashed = [leash().display().to_string(), "run".to_owned(), "--".to_owned()];
        let words: Vec<String> =
            leashed.into_iter().filter(|_| start == Start::OnALeash).chain(self.command.clone()).collect();
        let (program, arguments) = (self.scratch.join("host.py"), self.scratch.join("command"));
        fs::write(&program, HOST).expect("ours");
        fs::write(&arguments, words.join("\n")).expect("ours");
        let script = format!("exec python3 {} {} {SERVERS}", program.display(), arguments.display());
        let mut ssh = self.person.ssh(&script);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = Running(ssh.spawn().expect("ssh starts"));
        let mut line = String::new();
        let stdout = session.0.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the host prints its pid");
        (session, line.trim().parse().expect("a number"))
    }

    fn left(&self) -> usize {
        self.census.holders().len()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        self.census.kill();
    }
}

/// A number in a file of the kernel, by the word in front of it.
fn number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("the kernel has it");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel has it");
    line.split_ascii_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Processes that the kernel has killed for lack of memory since boot.
fn oom_kills() -> u64 {
    number("/proc/vmstat", "oom_kill ")
}

/// MiB that programs could still get.
fn available() -> u64 {
    number("/proc/meminfo", "MemAvailable:") / 1024
}

fn show(name: &str, outcome: &Outcome) {
    testkit::note(&format!("replay, {name}: {outcome:?}, {SERVERS} servers of {EACH} MiB for each host"));
}

#[test]
fn replay_without_leash() {
    or_skip!(in_the_box());
    let _alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut desktop = Desktop::new();
    let outcome = desktop.play(Start::Plain);
    let outcome = Outcome { left: desktop.left(), ..outcome };
    show("without leash", &outcome);
    assert!(outcome.oom_kills > 0, "{outcome:?}");
    assert!(outcome.left > 0, "{outcome:?}");
}

#[test]
fn replay_with_leash_run() {
    or_skip!(in_the_box());
    let _alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut desktop = Desktop::new();
    let outcome = desktop.play(Start::OnALeash);
    desktop.census.wait_gone(PATIENCE).expect("no server outlives its host");
    let outcome = Outcome { left: desktop.left(), ..outcome };
    show("with `leash run`", &outcome);
    assert_eq!((outcome.hosts, outcome.oom_kills), (HOSTS, 0), "{outcome:?}");
}

/// The servers are not on a leash. `watch` has the minimum age of a day, so it ends orphans only because memory is low.
#[test]
fn replay_with_watch_pressure() {
    or_skip!(in_the_box());
    let _alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut desktop = Desktop::new();
    let script = format!("exec {} watch --pressure --min-age 24h", leash().display());
    let log = desktop.scratch.join("watch.log");
    let mut watch = desktop.person.ssh(&script);
    watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(fs::File::create(&log).expect("ours"));
    let watch = Running(watch.spawn().expect("ssh starts"));
    let outcome = desktop.play(Start::Plain);
    let outcome = Outcome { left: desktop.left(), ..outcome };
    show("with `leash watch --pressure`", &outcome);
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert_eq!((outcome.hosts, outcome.oom_kills), (HOSTS, 0), "{outcome:?}\n{said}");
    let receipts = desktop.person.receipts();
    testkit::note(&format!("watch ended {} orphans", receipts.len()));
    assert!(receipts.iter().all(|receipt| receipt["reason"]["kind"] == "orphan"), "{receipts:#?}");
    assert!(!receipts.is_empty(), "{said}");
    drop(watch);
}
