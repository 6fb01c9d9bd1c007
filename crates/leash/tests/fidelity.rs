//! A server behind leash sees no difference, and neither does its host: bytes, flags, environment, exit codes.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde_json::Value;
use testkit::ground::{Containment, Ground};
use testkit::or_skip;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;

/// Blocks of random bytes, each different from all others in every page: a lost, doubled, changed or moved byte is
/// noticed. Generating every byte anew would take longer than the transfer.
struct Noise {
    block: Vec<u8>,
    count: u64,
}

const BLOCK: usize = 1 << 18;
const PAGE: usize = 1 << 12;

impl Noise {
    fn new() -> Self {
        let mut state: u64 = 0x6c65_6173_6821_2121;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Self { block: words.take(BLOCK / 8).flatten().collect(), count: 0 }
    }

    fn next(&mut self) -> &[u8] {
        self.count += 1;
        for page in self.block.chunks_exact_mut(PAGE) {
            page[..8].copy_from_slice(&self.count.to_le_bytes());
        }
        &self.block
    }
}

/// Sends `blocks` blocks of noise through `leash run -- zoo cat` and compares the output.
fn check_bytes(ends: fn() -> (OwnedFd, OwnedFd), blocks: usize, who: Who) {
    let scene = or_skip!(Scene::set(who));
    let (stdin, to_server) = ends();
    let (from_server, stdout) = ends();
    let mut command = run(&scene, &[], &["cat"]);
    let mut child = command.stdin(stdin).stdout(stdout).spawn().expect("cannot start leash");
    drop(command);

    let writer = std::thread::spawn(move || {
        let mut noise = Noise::new();
        let mut to_server = fs::File::from(to_server);
        for _ in 0..blocks {
            to_server.write_all(noise.next()).expect("cannot write to the server");
        }
    });
    let (mut noise, mut block) = (Noise::new(), vec![0; BLOCK]);
    let mut from_server = fs::File::from(from_server);
    for number in 0..blocks {
        from_server.read_exact(&mut block).expect("the server's output ended early");
        assert!(block == noise.next(), "block {number} of {blocks} differs");
    }
    writer.join().expect("the writer panicked");
    let more = from_server.read(&mut block).expect("cannot read to the end");
    assert_eq!(more, 0, "the server's output has extra bytes");
    assert!(child.wait().expect("cannot wait for leash").success());
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
}

/// A pipe, with the reading end first.
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).expect("cannot make a pipe")
}

/// A socketpair; its ends are equal.
fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("cannot make a socketpair")
}

/// `leash run OPTIONS -- zoo WORDS`.
fn run(scene: &Scene, options: &[&str], words: &[&str]) -> Command {
    let mut command = scene.leash(["run"]);
    command.args(options).arg("--").arg(scene.zoo_path()).args(words);
    command
}

#[test]
fn gibibyte_through_pipes() {
    check_bytes(pipe, (1 << 30) / BLOCK, Who::User);
}

#[test]
fn gibibyte_through_sockets() {
    check_bytes(sockets, (1 << 30) / BLOCK, Who::Root);
}

/// Checks that leash does not change the flags of a file description that it shares with the host and the server.
fn check_flags(ends: fn() -> (OwnedFd, OwnedFd), given: OFlags) {
    let scene = or_skip!(Scene::set(Who::User));
    let (stdin, to_server) = ends();
    let (from_server, stdout) = ends();
    let shared: Vec<OwnedFd> =
        [&stdin, &stdout].map(|end| end.try_clone().expect("cannot keep the server's end")).into();
    for end in &shared {
        let flags = rustix::fs::fcntl_getfl(end).expect("no flags");
        rustix::fs::fcntl_setfl(end, flags | given).expect("cannot set flags");
    }
    let flags = || shared.iter().map(|end| rustix::fs::fcntl_getfl(end).expect("no flags")).collect::<Vec<_>>();
    let before = flags();

    let words = scene.tree::<&str>("polite", []);
    let words = scene.run_words(["--grace", "100ms"], &words);
    let mut command = scene.command(&words[0]);
    let mut child = command.args(&words[1..]).stdin(stdin).stdout(stdout).spawn().expect("cannot start leash");
    drop(command);
    if given.is_empty() {
        // The answer of the server shows that leash has finished its start.
        rustix::io::write(&to_server, b"hello\n").expect("cannot write to the server");
        let mut answer = [0; 6];
        fs::File::from(from_server).read_exact(&mut answer).expect("the server does not answer");
        assert_eq!(flags(), before, "while the server runs");
    }
    drop(to_server);
    child.wait().expect("cannot wait for leash");
    assert_eq!(flags(), before, "after the end");
}

#[test]
fn flags_of_pipes_are_untouched() {
    check_flags(pipe, OFlags::empty());
}

#[test]
fn flags_of_sockets_are_untouched() {
    check_flags(sockets, OFlags::empty());
}

#[test]
fn nonblocking_pipes_stay_so() {
    check_flags(pipe, OFlags::NONBLOCK);
}

#[test]
fn nonblocking_sockets_stay_so() {
    check_flags(sockets, OFlags::NONBLOCK);
}

/// The report of `zoo env` when it is started by `command`.
fn report(command: &mut Command) -> Value {
    let output = command.stdin(Stdio::null()).output().expect("cannot start");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("not JSON")
}

/// The parts of a report that must be the same with and without leash.
fn comparable(mut report: Value, containment: Containment) -> Value {
    for name in ["pid", "leads_group", "leads_session"] {
        report[name] = Value::Null;
    }
    let files = report["fds"].as_array_mut().expect("no descriptors");
    // The process that runs the tests may have left some open, which a bare server inherits.
    files.retain(|file| file["fd"].as_u64() < Some(3));
    // Pipes of two starts have different inode numbers.
    for file in files {
        let link = file["link"].as_str().unwrap_or_default();
        file["link"] = link.split('[').next().unwrap_or_default().into();
    }
    if containment == Containment::Sealed {
        // The server is in its own PID namespace, where outer groups have no id.
        report["groups"] = Value::Null;
    }
    report
}

fn check_environment(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let mut scene = ground.scene().expect("the ground was prepared");
    scene.set_env("ODD", "a=b \"c\" \u{1F980}");
    scene.set_env("EMPTY", "");
    let words = ["env", "two words", "", "--", "-v", "caf\u{e9}"];
    let bare = report(&mut scene.zoo(words));
    let mut leashed = report(&mut run(&scene, &["--contain", containment.name()], &words));
    let mark = leashed["env"].as_object_mut().and_then(|env| env.remove("LEASH_ID"));
    assert!(mark.is_some_and(|mark| mark.is_string()), "no mark");
    assert_eq!(leashed["leads_group"], true, "the server has a group of its own");
    assert_eq!(leashed["fds"].as_array().map(Vec::len), Some(3), "{}", leashed["fds"]);
    assert_eq!(comparable(leashed, containment), comparable(bare, containment));
}

macro_rules! environment {
    ($($name:ident: $containment:ident $who:ident;)*) => {
        $(
            #[test]
            fn $name() {
                check_environment(Containment::$containment, Who::$who);
            }
        )*
    };
}

environment! {
    environment_is_the_same_in_sealed_as_root: Sealed Root;
    environment_is_the_same_in_sealed_as_user: Sealed User;
    environment_is_the_same_in_unit_as_root: Unit Root;
    environment_is_the_same_in_unit_as_user: Unit User;
    environment_is_the_same_in_leaf_as_root: Leaf Root;
    environment_is_the_same_in_leaf_as_user: Leaf User;
    environment_is_the_same_in_reaper_as_root: Reaper Root;
    environment_is_the_same_in_reaper_as_user: Reaper User;
}

/// The reports of a server behind a leash that was started with `steps`, and of one without leash.
fn inherited(scene: &Scene, steps: fn() -> Vec<Step>) -> (Value, Value) {
    let mut bare = scene.zoo(["env"]);
    let mut leashed = run(scene, &[], &["env"]);
    sys::prepare(&mut bare, steps());
    sys::prepare(&mut leashed, steps());
    (report(&mut leashed), report(&mut bare))
}

/// Checks that these settings of leash reach the server as if leash were not there.
fn check_inherited(steps: fn() -> Vec<Step>) {
    let scene = or_skip!(Scene::set(Who::User));
    let (leashed, bare) = inherited(&scene, steps);
    for name in ["blocked", "ignored", "umask", "nice", "nofile", "cwd"] {
        assert_eq!(leashed[name], bare[name], "{name}");
    }
}

/// As with `nohup`, and with background jobs of a shell.
#[test]
fn ignored_signals_are_inherited() {
    check_inherited(|| vec![Step::Ignore(Signal::HUP), Step::Ignore(Signal::INT), Step::Ignore(Signal::USR2)]);
}

#[test]
fn limits_are_inherited() {
    check_inherited(|| vec![Step::Limit(rustix::process::Resource::Nofile, 100)]);
}

/// A server that starts with SIGTERM blocked could only be killed.
#[test]
fn blocked_signals_are_unblocked() {
    let scene = or_skip!(Scene::set(Who::User));
    let steps = || vec![Step::Block(Signal::TERM), Step::Block(Signal::CHILD), Step::Block(Signal::USR1)];
    let (leashed, bare) = inherited(&scene, steps);
    assert_eq!(bare["blocked"], serde_json::json!([10, 15, 17]));
    assert_eq!(leashed["blocked"], serde_json::json!([]));
}

/// Prints its own `stat` line, and whether it can open the terminal of its session.
const TERMINAL: &str =
    "cat /proc/$$/stat; if (: < /dev/tty) 2> /dev/null; then echo reached; else echo unreachable; fi";

/// Checks that a server is in the session of its keeper and reaches no terminal.
fn check_session(steps: impl Fn() -> Vec<Step>, bare_reaches: bool) {
    let scene = or_skip!(Scene::set(Who::User));
    let server = ["sh", "-c", TERMINAL].map(OsString::from);
    let said = |words: &[OsString]| {
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        sys::prepare(&mut command, steps());
        let output = command.output().expect("cannot start");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("not text")
    };
    assert_eq!(said(&server).ends_with("\nreached\n"), bare_reaches, "without leash");
    let leashed = said(&scene.run_words(["--contain", "reaper"], &server));
    let fields: Vec<&str> = leashed.lines().next().unwrap_or_default().split(' ').collect();
    let (parent, session, terminal) = (fields[3], fields[5], fields[6]);
    assert_eq!((session, terminal), (parent, "0"), "{leashed}");
    assert!(leashed.ends_with("\nunreachable\n"), "{leashed}");
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
}

/// leash proves by this session which processes are the tree's (docs/explain/life-of-a-tree.md).
#[test]
fn server_is_in_the_session_of_its_keeper() {
    check_session(|| vec![Step::OwnSession], false);
}

/// Otherwise the server could read what the user types into the host, or be stopped because it tries to.
#[test]
fn server_does_not_reach_the_terminal_of_its_host() {
    let terminal = Pty::open().expect("a terminal");
    check_session(|| vec![terminal.control().expect("a terminal")], true);
}

#[test]
fn stray_descriptors_are_closed() {
    let scene = or_skip!(Scene::set(Who::User));
    let steps = || vec![Step::Keep(fs::File::open("/dev/zero").expect("no /dev/zero").into())];
    let (leashed, bare) = inherited(&scene, steps);
    let files = |report: &Value| report["fds"].as_array().map(Vec::len);
    assert!(files(&bare) > Some(3), "the bare server has it: {}", bare["fds"]);
    assert_eq!(files(&leashed), Some(3), "{}", leashed["fds"]);
}

#[test]
fn working_directory_and_environment_can_be_given() {
    let scene = or_skip!(Scene::set(Who::User));
    let seen = report(&mut run(&scene, &["--cwd", "/usr", "--env", "ONE=1", "--env", "TWO=a=b"], &["env"]));
    assert_eq!(seen["cwd"], "/usr");
    assert_eq!((&seen["env"]["ONE"], &seen["env"]["TWO"]), (&"1".into(), &"a=b".into()));
}

fn check_code(words: &[&str], code: i32) {
    for containment in [Containment::Sealed, Containment::Leaf, Containment::Reaper] {
        let ground = or_skip!(Ground::prepare(containment, Who::User));
        let scene = ground.scene().expect("the ground was prepared");
        let mut command = run(&scene, &["--contain", containment.name()], words);
        let answer: testkit::leash::Answer = command.output().expect("cannot start leash").into();
        assert_eq!(answer.code, code, "{containment} {words:?}: {answer:?}");
        assert_eq!(answer.stdout, "", "{containment} {words:?}");
        scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
    }
}

#[test]
fn exit_codes_are_mirrored() {
    for code in ["0", "1", "3", "42", "124", "125", "255"] {
        check_code(&["exit", code], code.parse().expect("a number"));
    }
}

#[test]
fn signals_become_exit_codes() {
    for signal in [Signal::HUP, Signal::INT, Signal::ABORT, Signal::KILL, Signal::SEGV, Signal::TERM, Signal::USR1] {
        check_code(&["signal-self", &signal.as_raw().to_string()], 128 + signal.as_raw());
    }
}

/// Runs a shell line through leash and returns stdout and stderr.
fn shell(scene: &Scene, options: &[&str], line: &str) -> (String, String) {
    let mut command = scene.leash(["run"]);
    command.args(options).args(["--", "sh", "-c", line]);
    let answer: testkit::leash::Answer = command.output().expect("cannot start leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    (answer.stdout, answer.stderr)
}

#[test]
fn stderr_is_the_servers_own() {
    let scene = or_skip!(Scene::set(Who::User));
    let seen = shell(&scene, &[], "echo said; echo warned >&2");
    assert_eq!(seen, ("said\n".to_owned(), "warned\n".to_owned()));
}

#[test]
fn verbose_leash_prints_nothing_on_stdout() {
    let scene = or_skip!(Scene::set(Who::User));
    let (stdout, stderr) = shell(&scene, &["-v"], "echo said; echo warned >&2");
    assert_eq!(stdout, "said\n");
    assert!(stderr.contains("warned\n") && stderr.len() > "warned\n".len(), "{stderr}");
}
