//! The installed watch, with logins and logouts, and together with the hook of a host.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::json;
use testkit::leash::{leash, zoo};
use testkit::or_skip;

use crate::person::{Person, Running, Tree, in_the_box, signal, until};

/// Options of a watch that does not let a test wait.
const QUICK: &str = "--min-age 0 --settle 200ms --grace 200ms --interval 1s";

/// A host as Claude Code is one. It starts its servers, prints its pid, and then runs the hook with each line that it
/// reads, and prints the exit code of the hook.
const HOST: &str = r#"
import os, subprocess, sys
leash, servers = sys.argv[1], sys.argv[2:]
pipes = [subprocess.Popen(server.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) for server in servers]
print(os.getpid(), flush=True)
for line in sys.stdin:
    hook = subprocess.run([leash, "end", "--hook"], input=line.encode(), stdout=subprocess.DEVNULL)
    print(hook.returncode, flush=True)
"#;

/// A running host.
struct Host {
    ssh: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pid: i32,
}

impl Host {
    /// Starts it in a login session of the person.
    fn start(person: &Person, conversation: &str, servers: &[String]) -> Host {
        let words: Vec<String> = servers.iter().map(|server| format!("'{server}'")).collect();
        let (leash, words) = (leash().display().to_string(), words.join(" "));
        let script = person.write("host.py", HOST);
        let environment = format!("CLAUDECODE=1 CLAUDE_CODE_SESSION_ID={conversation}");
        let mut ssh = person.ssh(&format!("exec env {environment} python3 {} {leash} {words}", script.display()));
        let mut ssh = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh starts");
        let stdout = BufReader::new(ssh.stdout.take().expect("it is a pipe"));
        let mut host = Host { stdin: ssh.stdin.take(), ssh, stdout, pid: 0 };
        host.pid = host.heard();
        host
    }

    /// The next number that it prints.
    fn heard(&mut self) -> i32 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is a pipe");
        line.trim().parse().unwrap_or_else(|_| panic!("not a number: {line:?}"))
    }

    /// The end of a conversation, as Claude Code tells its hooks. Returns the exit code of the hook.
    fn end_conversation(&mut self, conversation: &str, reason: &str) -> i32 {
        let input = json!({
            "session_id": conversation,
            "transcript_path": format!("/home/me/.claude/projects/shop/{conversation}.jsonl"),
            "cwd": "/home/me/shop",
            "hook_event_name": "SessionEnd",
            "reason": reason,
        });
        writeln!(self.stdin.as_mut().expect("it is open"), "{input}").expect("the host reads");
        self.heard()
    }

    /// Kills the host. It runs no hook.
    fn crash(&self) {
        signal(self.pid, Signal::KILL);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Writes the trees as servers into the configuration of Claude Code.
fn configure(person: &Person, trees: &[&Tree]) {
    let server = |tree: &Tree| {
        let args: Vec<&str> = tree.words.split(' ').skip(1).collect();
        json!({"command": zoo(), "args": args})
    };
    let servers: serde_json::Map<_, _> =
        trees.iter().enumerate().map(|(number, tree)| (format!("server-{number}"), server(tree))).collect();
    person.write(".claude.json", &json!({"mcpServers": servers}).to_string());
}

/// A tree that no leash holds, without a host: its host was killed.
fn orphan(person: &Person) -> Tree {
    let mut tree = Tree::new("ignores-eof");
    configure(person, &[&tree]);
    let host = Host::start(person, "none", &[tree.words.clone()]);
    tree.wait_ready();
    host.crash();
    tree
}

/// A property of a unit of the person's manager; empty if the manager does not run.
fn property(person: &Person, unit: &str, name: &str) -> String {
    let mut command = person.command("systemctl");
    command.args(["--user", "show", "--value", &format!("--property={name}"), unit]);
    String::from_utf8_lossy(&command.output().expect("setpriv starts").stdout).trim().to_owned()
}

/// All files and links below the person's directory of units.
fn unit_files(person: &Person) -> Vec<PathBuf> {
    fn below(dir: PathBuf) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.flat_map(|path| if path.is_dir() && !path.is_symlink() { below(path) } else { vec![path] }).collect()
    }
    below(person.home().join(".config/systemd/user"))
}

/// A watch that the person installs in a login session. `unit` is what the person's manager starts at login.
fn check_installed(option: &str, unit: &str, linger: bool) {
    let person = Person::new();
    person.linger(linger);
    let session = Running::start(person.ssh("exec sleep infinity"));
    let answer = person.answer(&format!("{} watch --install {option} {QUICK}", leash().display()));
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{answer:?}");
    assert!(answer.stdout.contains("while you are logged in; after `loginctl enable-linger`"), "{answer:?}");
    orphan(&person).check_gone();

    let is_running = || property(&person, unit, "ActiveState") == "active";
    let since = || property(&person, unit, "ActiveEnterTimestampMonotonic");
    let before = since();
    assert!(is_running());
    person.log_out();
    drop(session);
    match linger {
        true => until("no session", || person.sessions().is_empty().then_some(())),
        false => until("the end of the user manager", || (!is_running()).then_some(())),
    }
    assert_eq!(is_running(), linger);
    // The next login finds the same watch, or starts a new one.
    let session = Running::start(person.ssh("exec sleep infinity"));
    until("a running watch", || is_running().then_some(()));
    assert_eq!(since() == before, linger);
    orphan(&person).check_gone();

    let answer = person.answer(&format!("{} watch --uninstall", leash().display()));
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{answer:?}");
    assert_eq!(unit_files(&person), Vec::<PathBuf>::new());
    for unit in ["leash-watch.service", "leash-watch.timer"] {
        assert_eq!(property(&person, unit, "LoadState"), "not-found", "{unit}");
        assert_eq!(property(&person, unit, "ActiveState"), "inactive", "{unit}");
    }
    drop(session);
    let kinds: Vec<String> = person.receipts().iter().map(|receipt| receipt["reason"]["kind"].to_string()).collect();
    assert_eq!(kinds, ["\"orphan\""; 2]);
}

/// Without linger, the watch ends with the last session and starts with the next one.
#[test]
fn installed_watch() {
    or_skip!(in_the_box());
    check_installed("", "leash-watch.service", false);
}

#[test]
fn installed_timer() {
    or_skip!(in_the_box());
    check_installed("--once", "leash-watch.timer", true);
}

/// The two layers against servers that stay: the hook ends what a conversation used, and the watch ends what a host
/// left that ran no hook. The servers of another conversation live through all of it.
#[test]
fn hook_and_watch_together() {
    or_skip!(in_the_box());
    let person = Person::new();
    let [mut asked, mut crashed, mut other] = std::array::from_fn(|_| Servers::new());
    configure(&person, &[&asked.plain, &crashed.plain, &other.plain]);
    let answer = person.answer(&format!("{} watch --install --once {QUICK}", leash().display()));
    assert_eq!(answer.code, 0, "{answer:?}");
    let mut first = asked.host(&person, "first");
    let second = crashed.host(&person, "second");
    let mut third = other.host(&person, "third");

    // The host continues after `/clear`, and so do its servers.
    assert_eq!(first.end_conversation("first", "clear"), 0);
    asked.check_live();
    // The hook ends the servers on the leash, while the host still lives and holds their pipes.
    assert_eq!(first.end_conversation("first", "prompt_input_exit"), 0);
    asked.leashed.check_gone();
    asked.plain.check_lives();
    // The host exits without ending the server that is not on the leash.
    first.crash();
    asked.plain.check_gone();

    // A killed host runs no hook.
    second.crash();
    crashed.leashed.check_gone();
    crashed.plain.check_gone();

    other.check_live();
    assert_eq!(third.end_conversation("third", "other"), 0);
    other.leashed.check_gone();
    third.crash();
    other.plain.check_gone();

    let mut ends: Vec<(String, String)> = until("six receipts", || {
        let receipts = person.receipts();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let end = |receipt: &serde_json::Value| match text(&receipt["reason"]["kind"]) {
            kind if kind == "orphan" => (String::new(), kind),
            kind => (text(&receipt["session"]), kind),
        };
        (receipts.len() == 6).then(|| receipts.iter().map(end).collect())
    });
    ends.sort();
    let second = ends.iter().position(|(session, _)| session == "second").map(|at| ends.remove(at).1);
    assert!(["owner_gone", "stdin_closed"].contains(&second.as_deref().unwrap_or_default()), "{second:?}");
    let orphan = ("", "orphan");
    let expected = [orphan, orphan, orphan, ("first", "requested"), ("third", "requested")];
    assert_eq!(ends, expected.map(|(session, kind)| (session.to_owned(), kind.to_owned())));
    assert_eq!(person.answer(&format!("{} watch --uninstall", leash().display())).code, 0);
}

/// The servers of one conversation: one on the leash, and one that is not.
struct Servers {
    leashed: Tree,
    plain: Tree,
}

impl Servers {
    fn new() -> Servers {
        Servers { leashed: Tree::new("daemon"), plain: Tree::new("ignores-eof") }
    }

    /// A host with these servers.
    fn host(&mut self, person: &Person, conversation: &str) -> Host {
        let on_a_leash = self.leashed.on_a_leash("--session {CLAUDE_CODE_SESSION_ID} --grace 500ms");
        let leashed = on_a_leash.trim_start_matches("exec ").to_owned();
        let host = Host::start(person, conversation, &[leashed, self.plain.words.clone()]);
        self.leashed.wait_ready();
        self.plain.wait_ready();
        host
    }

    fn check_live(&self) {
        self.leashed.check_lives();
        self.plain.check_lives();
    }
}
