//! Budgets that several trees share: those of a session, and all trees of a person.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::Control;
use testkit::leash::{leash, zoo};
use testkit::wait::{self, Stopwatch};
use testkit::{or_skip, sys};

use crate::person::{FORKS, Person, Running, Tree, in_the_box, root};

/// A server that needs more and more memory that cannot be compressed, and never ends by itself.
const LEAK: &str = r#"python3 -c '
import os, time
kept = []
block = os.urandom(1 << 20)
while True:
    kept.append(bytearray(block))
    time.sleep(0.01)
'"#;

/// A server that needs far more memory than any budget here, at once.
const GREEDY: &str = r#"python3 -c 'b"x" * (1 << 30)'"#;

/// A running server that holds the FIFO of a census besides its own descriptors.
struct Server {
    tree: Tree,
    host: Running,
}

impl Server {
    /// Starts a server that uses much memory.
    fn start(person: &Person, options: &str, server: &str) -> Server {
        let tree = Tree::new("chain");
        let held = format!("sh -c 'exec 9>$0; exec \"$@\"' {} {server}", tree.census.path().display());
        let script = format!("exec {} run {options} -- {held}", leash().display());
        Server { host: Running::start(person.ssh(&script)), tree }
    }

    /// Starts a small server, and waits until it is complete.
    fn small(person: &Person, options: &str) -> Server {
        let mut tree = Tree::new("daemon");
        let host = Running::start(person.ssh(&tree.on_a_leash(options)));
        tree.wait_ready();
        Server { tree, host }
    }

    /// Ends it as a host does.
    fn close(mut self) {
        self.host.close();
        self.tree.check_gone();
    }
}

/// Waits for the first receipt of a person.
fn first_receipt(person: &Person) -> Value {
    let found = wait::every(Duration::from_millis(500), Duration::from_secs(180), || person.receipts().pop());
    found.expect("no tree has ended")
}

/// The cgroup of a slice of the person.
fn slice(person: &Person, path: &str) -> PathBuf {
    let uid = person.uid();
    Path::new("/sys/fs/cgroup/user.slice").join(format!("user-{uid}.slice/user@{uid}.service")).join(path)
}

fn file(dir: &Path, name: &str) -> String {
    let text = fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{}/{name}: {error}", dir.display()));
    text.trim().to_owned()
}

/// Writes the person's leash.json.
fn configure(person: &Person, text: &str) {
    let dir = Path::new("/home").join(&person.name).join(".config/leash");
    fs::create_dir_all(&dir).expect("a new home");
    fs::write(dir.join("leash.json"), text).expect("a new home");
    for path in dir.join("leash.json").ancestors().take(3) {
        chown(path, Some(person.uid()), Some(person.uid())).expect("we are root");
    }
}

/// A person with one small server in the same session as the large one, and one in another session. Both live; the slices
/// are gone after the last server.
fn check_session(large: &str) {
    let person = Person::new();
    person.linger(true);
    let options = |session: &str| format!("--session {session} --session-memory 160M --grace 1s");
    let same = Server::small(&person, &options("job-1"));
    let other = Server::small(&person, &options("job-2"));
    let dir = slice(&person, r"leash.slice/leash-job\x2d1.slice");
    assert_eq!(file(&dir, "memory.max"), (160 << 20).to_string());
    assert_eq!(file(&dir, "memory.high"), (140 << 20).to_string());
    assert_eq!(file(&dir, "memory.swap.max"), "0");
    let mut large = Server::start(&person, &options("job-1"), large);
    let receipt = first_receipt(&person);
    assert_eq!(receipt["reason"], json!({"kind": "memory_budget", "budget": "session"}), "{receipt:#}");
    assert_eq!(receipt["session"], "job-1", "{receipt:#}");
    assert_eq!(receipt["holdings"][0]["fate"], "gone", "{receipt:#}");
    assert!(receipt["holdings"][0]["members"].as_u64() > Some(0), "{receipt:#}");
    large.tree.check_gone();
    assert_eq!(person.receipts().len(), 1, "only the largest tree ends");
    same.tree.check_lives();
    other.tree.check_lives();
    same.close();
    other.close();
    wait::until("no empty slice is left", || (!slice(&person, "leash.slice").exists()).then_some(()));
}

#[test]
fn session_leaks() {
    or_skip!(in_the_box());
    check_session(LEAK);
}

#[test]
fn session_is_greedy() {
    or_skip!(in_the_box());
    check_session(GREEDY);
}

/// The file of the person has a budget for all of leash. The largest tree of all sessions ends.
#[test]
fn all_of_leash() {
    or_skip!(in_the_box());
    for large in [LEAK, GREEDY] {
        let person = Person::new();
        configure(&person, r#"{"budget": {"memory": "160M"}}"#);
        let first = Server::small(&person, "--session job-1 --session-memory 120M");
        let second = Server::small(&person, "");
        assert_eq!(file(&slice(&person, "leash.slice"), "memory.max"), (160 << 20).to_string());
        let mut large = Server::start(&person, "--grace 1s", large);
        let receipt = first_receipt(&person);
        assert_eq!(receipt["reason"], json!({"kind": "memory_budget", "budget": "all"}), "{receipt:#}");
        large.tree.check_gone();
        first.tree.check_lives();
        second.tree.check_lives();
        first.close();
        second.close();
    }
}

/// The last start sets the limits, and a budget that the file has no more holds no more after the last tree.
#[test]
fn budgets_change() {
    or_skip!(in_the_box());
    let person = Person::new();
    person.linger(true);
    let start = |size: &str| Server::small(&person, &format!("--session s --session-memory {size}"));
    let dir = slice(&person, "leash.slice/leash-s.slice");
    let first = start("160M");
    let second = start("200M");
    assert_eq!(file(&dir, "memory.max"), (200 << 20).to_string());
    first.close();
    second.close();
    wait::until("no empty slice is left", || (!slice(&person, "leash.slice").exists()).then_some(()));
    let third = start("100M");
    assert_eq!(file(&dir, "memory.max"), (100 << 20).to_string());
    third.close();
    let files = person.answer("find $XDG_RUNTIME_DIR/systemd -name '*leash*slice*'");
    wait::until("no file of a slice is left", || files.stdout.is_empty().then_some(()));
}

/// Many trees of a session start at the same time.
#[test]
fn trees_start_together() {
    or_skip!(in_the_box());
    let person = Person::new();
    let options = "--session s --session-memory 300M";
    let mut trees: Vec<Tree> = (0..4).map(|_| Tree::new("chain")).collect();
    let hosts: Vec<Running> = trees.iter().map(|tree| Running::start(person.ssh(&tree.on_a_leash(options)))).collect();
    trees.iter_mut().for_each(Tree::wait_ready);
    let dir = slice(&person, "leash.slice/leash-s.slice");
    assert_eq!(file(&dir, "memory.max"), (300 << 20).to_string());
    let scopes = fs::read_dir(&dir).expect("it exists").flatten();
    let scopes = scopes.filter(|entry| entry.file_name().to_string_lossy().ends_with(".scope")).count();
    assert_eq!(scopes, trees.len());
    for mut host in hosts {
        host.close();
    }
    trees.iter_mut().for_each(Tree::check_gone);
}

/// All trees of a session together may have so many processes. Another session may have more.
#[test]
fn processes_of_a_session() {
    or_skip!(in_the_box());
    let person = Person::new();
    let small = Server::small(&person, "--session s --session-pids 20");
    let count = |options: &str| -> u32 {
        let answer = person.answer(&format!("{} run {options} -- {FORKS}", leash().display()));
        answer.stdout.trim().parse().unwrap_or_else(|_| panic!("{answer:?}"))
    };
    let here = count("--owner none --session s --session-pids 20");
    assert!((1..18).contains(&here), "{here} processes");
    assert_eq!(count("--owner none --session t"), 40);
    small.tree.check_lives();
    small.close();
}

/// The slice of the session has the asked share of the processors.
#[test]
fn processor_time_of_a_session() {
    or_skip!(in_the_box());
    for (value, name, expected) in [("200%", "cpu.max", "200000 100000"), ("20", "cpu.weight", "20")] {
        let person = Person::new();
        let small = Server::small(&person, &format!("--session s --session-cpu {value}"));
        assert_eq!(file(&slice(&person, "leash.slice/leash-s.slice"), name), expected);
        small.close();
    }
}

/// A user manager without a controller, and a containment that is not `unit`: leash says what is missing.
#[test]
fn refused() {
    or_skip!(in_the_box());
    let person = Person::new();
    // In a login session, because a user manager is needed.
    let leash = |words: &str| person.answer(&format!("{} {words}", leash().display()));
    let dir = PathBuf::from(format!("/run/systemd/system/user@{}.service.d", person.uid()));
    fs::create_dir_all(&dir).expect("we are root");
    fs::write(dir.join("delegate.conf"), "[Service]\nDelegate=\nDelegate=pids memory\n").expect("we are root");
    root("systemctl", &["daemon-reload"]);
    for (options, reason) in [
        ("--session-cpu 50%", "not unit: the `cpu` controller is not available in "),
        (
            "--session-pids 9 --contain leaf",
            "not leaf: a budget of a session, or for all of leash, needs the systemd user manager (`unit`)",
        ),
    ] {
        let answer = leash(&format!("run --owner none {options} -- true"));
        assert_eq!(answer.code, 125, "{answer:?}");
        assert!(answer.stderr.contains(reason), "{answer:?}");
    }
    assert_eq!(leash("run --owner none --session-pids 9 -- true").code, 0);
    fs::remove_dir_all(&dir).expect("we are root");
}

/// A session of the control API has a budget. `serve` also keeps to the budget for all of leash.
#[test]
fn control_api() {
    or_skip!(in_the_box());
    let person = Person::new();
    configure(&person, r#"{"budget": {"memory": "1G"}}"#);
    let socket = Path::new("/home").join(&person.name).join("control.sock");
    let script = format!("exec {} serve --on-demand --control {}", leash().display(), socket.display());
    let daemon = Running::start(person.ssh(&script));
    wait::until("a control socket", || socket.exists().then_some(()));
    let control = Control::at(&socket);
    let body = json!({
        "mcpServers": {"leak": {"command": "sh", "args": ["-c", LEAK]}, "echo": {"command": zoo(), "args": ["echo"]}},
        "budget": {"memory": "160M"},
    });
    let made = control.ask("POST", "/v1/sessions", &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let session: Value = serde_json::from_slice(&made.body).expect("JSON");
    let id = session["id"].as_str().expect("an id").to_owned();
    assert_eq!(file(&slice(&person, "leash.slice"), "memory.max"), (1 << 30).to_string());
    let dir = slice(&person, &format!("leash.slice/leash-{id}.slice"));
    assert_eq!(file(&dir, "memory.max"), (160 << 20).to_string());
    let receipt = first_receipt(&person);
    assert_eq!(receipt["reason"], json!({"kind": "memory_budget", "budget": "session"}), "{receipt:#}");
    assert_eq!(receipt["name"], "leak", "{receipt:#}");
    assert_eq!(control.ask("DELETE", &format!("/v1/sessions/{id}"), "").status, 200);
    drop(daemon);
}

/// An echo server and the times that it takes.
struct Echo {
    ssh: Child,
    lines: BufReader<std::process::ChildStdout>,
    times: Vec<Duration>,
}

impl Echo {
    fn start(person: &Person) -> Echo {
        let mut command = person.ssh(&format!("exec {} run -- {} echo", leash().display(), zoo().display()));
        sys::prepare(&mut command, vec![sys::Step::DieWithParent]);
        let mut ssh = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh starts");
        let lines = BufReader::new(ssh.stdout.take().expect("a pipe"));
        let mut echo = Echo { ssh, lines, times: Vec::new() };
        echo.ask();
        echo.times.clear();
        echo
    }

    /// Sends a line and waits for it.
    fn ask(&mut self) {
        let watch = Stopwatch::start();
        let line = format!("{}\n", self.times.len());
        self.ssh.stdin.as_mut().expect("a pipe").write_all(line.as_bytes()).expect("it reads");
        let mut answer = String::new();
        self.lines.read_line(&mut answer).expect("a pipe");
        assert_eq!(answer, line, "every line is answered");
        self.times.push(watch.time());
    }

    /// Asks until `end` says so; prints the times.
    fn measure(mut self, what: &str, mut is_over: impl FnMut() -> bool) {
        while self.times.len() < 100 || !is_over() {
            self.ask();
            wait::step(Duration::from_millis(20));
        }
        self.times.sort_unstable();
        let at = |percent: usize| self.times[(self.times.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
        let (p50, p99, most, count) = (at(50), at(99), at(100), self.times.len());
        let line = format!("echo, {what}: p50 {p50:.1} ms, p99 {p99:.1} ms, longest {most:.1} ms, {count} answers");
        // Shown although the test passes.
        let _ = writeln!(std::io::stdout(), "{line}");
        drop(self.ssh.stdin.take());
        self.ssh.wait().expect("it was not waited for");
    }
}

/// How fast a server answers while another tree allocates memory without end.
#[test]
fn latency() {
    or_skip!(in_the_box());
    let fast = LEAK.replace("    time.sleep(0.01)\n", "");
    let person = Person::new();
    Echo::start(&person).measure("nothing else runs", || true);
    for (what, options) in
        [("no budget", ""), ("tree budget", "--memory 256M"), ("session budget", "--session s --session-memory 256M")]
    {
        let person = Person::new();
        let echo = Echo::start(&person);
        let mut large = Server::start(&person, options, &fast);
        echo.measure(what, || matches!(large.host.0.try_wait(), Ok(Some(_))));
        large.tree.check_gone();
        let receipts = person.receipts();
        let victim = receipts.iter().find(|receipt| receipt["name"] != "zoo").expect("it has ended");
        let expected = if options.is_empty() { "server_exited" } else { "memory_budget" };
        assert_eq!(victim["reason"]["kind"], expected, "{victim:#}");
    }
}
