//! The launcher of the npm package, run by the shell and by Node: a server has the same limits and signals as without it,
//! signals reach leash, and the launcher ends as leash ends.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use testkit::deps::Deps;
use testkit::lines::Lines;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

/// A server that says when it runs, and when SIGTERM ends it.
const SERVER: &str = "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.1; done";

/// The ways to start leash: without the launcher, by the shell, and by two versions of Node.
struct Ways {
    scene: Scene,
    deps: Option<Deps>,
}

impl Ways {
    fn new() -> Ways {
        let scene = Scene::set(Who::me()).expect("the user that runs the tests can");
        let packages = scene.dir().join("node_modules");
        let platform = packages.join(platform());
        for dir in [packages.join("mcp-leash/bin"), platform.join("bin")] {
            fs::create_dir_all(dir).expect("the scene is ours");
        }
        let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript/bin/leash.cjs");
        fs::copy(launcher, packages.join("mcp-leash/bin/leash.cjs")).expect("the scene is ours");
        fs::write(platform.join("package.json"), "{}").expect("the scene is ours");
        fs::copy(testkit::leash::leash(), platform.join("bin/leash")).expect("the scene is ours");
        Ways { scene, deps: Deps::find().ok() }
    }

    fn native(&self) -> Vec<OsString> {
        vec![self.scene.dir().join("node_modules").join(platform()).join("bin/leash").into()]
    }

    fn shell(&self) -> Vec<OsString> {
        vec![self.scene.dir().join("node_modules/mcp-leash/bin/leash.cjs").into()]
    }

    /// Every Node that this machine has for tests: the usual one, and one with `process.execve`.
    fn nodes(&self) -> Vec<Vec<OsString>> {
        let programs = [Some("node".into()), self.deps.as_ref().map(Deps::node_22)];
        let all = programs.into_iter().flatten();
        all.map(|node| vec![node.into(), self.shell().remove(0)]).collect()
    }

    /// True if a process executes the program itself.
    fn is_native(&self, pid: Pid) -> bool {
        let native = fs::canonicalize(&self.native()[0]).expect("it is there");
        fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).is_ok_and(|exe| exe == native)
    }

    /// Starts a shell that sets a limit and starts these words as its child. stdin stays open until the child ends.
    fn start(&self, words: &[OsString], more: &[&str]) -> Child {
        let mut command = self.scene.command("sh");
        command.args(["-c", "ulimit -S -n 300; \"$@\"; exit $?", "sh"]).args(words).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start sh")
    }

    fn output(&self, words: &[OsString], more: &[&str]) -> (String, ExitStatus) {
        let output = self.start(words, more).wait_with_output().expect("it was not waited for");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status)
    }

    fn close(self) {
        self.scene.wait_gone(&[]).expect("nothing is left");
    }
}

fn platform() -> &'static str {
    if cfg!(target_arch = "aarch64") { "@mcp-leash/linux-arm64" } else { "@mcp-leash/linux-x64" }
}

/// The only child of a process, once it has one.
fn only_child(pid: Pid) -> Handle {
    let child = wait::until("a child", || process::children(pid).into_iter().next());
    Handle::open(child.pid, |now| now.start == child.start).expect("it lives")
}

/// True for Node 22.15 and later.
fn can_replace_itself(node: &OsString) -> bool {
    let output = Command::new(node).args(["-p", "process.execve !== undefined"]).output().expect("cannot start node");
    output.stdout == b"true\n"
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a child has a number")
}

#[test]
fn limits_signals_and_variables_of_the_server_are_those_without_the_launcher() {
    let ways = Ways::new();
    let facts = |words: &[OsString]| {
        let script = "cat /proc/self/status /proc/self/limits; env";
        let (text, status) = ways.output(words, &["run", "--", "sh", "-c", script]);
        assert!(status.success(), "{words:?}: {status}");
        let lines = text
            .lines()
            .filter(|line| ["SigIgn:", "SigBlk:", "Max ", "LEASH_L"].iter().any(|start| line.starts_with(start)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = facts(&ways.native());
    assert!(expected.iter().any(|line| line.starts_with("Max open files            300 ")), "{expected:#?}");
    assert_eq!(facts(&ways.shell()), expected);
    for node in ways.nodes() {
        assert_eq!(facts(&node), expected, "{node:?}");
    }
    ways.close();
}

#[test]
fn exit_codes_are_passed_on() {
    let ways = Ways::new();
    for words in [ways.native(), ways.shell()].into_iter().chain(ways.nodes()) {
        for (script, code) in [("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
            let (_, status) = ways.output(&words, &["run", "--", "sh", "-c", script]);
            assert_eq!(status.code(), Some(code), "{words:?}: {script}");
        }
    }
    ways.close();
}

#[test]
fn signals_reach_leash_once() {
    let ways = Ways::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let end = |words: &[OsString]| {
            let mut child = ways.start(words, &["run", "--", "sh", "-c", SERVER]);
            let mut says = Lines::new(child.stdout.take().expect("a pipe"));
            assert_eq!(says.next(LIMIT).as_deref(), Some("ready"), "{words:?}");
            only_child(pid_of(&child)).signal(signal).expect("it lives");
            // A second signal would end the server without its grace, and this line would be missing.
            assert_eq!(says.next(LIMIT).as_deref(), Some("ended"), "{words:?}: {signal:?}");
            drop(child.stdin.take());
            child.wait().expect("it was not waited for").code()
        };
        let expected = end(&ways.native());
        for words in [ways.shell()].into_iter().chain(ways.nodes()) {
            assert_eq!(end(&words), expected, "{words:?}: {signal:?}");
        }
    }
    ways.close();
}

/// The shell, and Node 22.15 or later, become leash. An older Node has leash as its only child.
#[test]
fn no_launcher_stays_in_front_of_leash_where_it_can_replace_itself() {
    let ways = Ways::new();
    for words in [ways.shell()].into_iter().chain(ways.nodes()) {
        let mut child = ways.start(&words, &["run", "--", "sh", "-c", SERVER]);
        let mut says = Lines::new(child.stdout.take().expect("a pipe"));
        assert_eq!(says.next(LIMIT).as_deref(), Some("ready"), "{words:?}");
        let first = only_child(pid_of(&child));
        assert_eq!(ways.is_native(first.pid()), words.len() == 1 || can_replace_itself(&words[0]), "{words:?}");
        first.signal(Signal::TERM).expect("it lives");
        child.wait().expect("it was not waited for");
    }
    ways.close();
}

/// The shell that started the launcher says by which signal it died.
#[test]
fn the_launcher_dies_as_leash_died() {
    let ways = Ways::new();
    for node in ways.nodes() {
        let mut child = ways.start(&node, &["run", "--", "sh", "-c", SERVER]);
        let mut says = Lines::new(child.stdout.take().expect("a pipe"));
        assert_eq!(says.next(LIMIT).as_deref(), Some("ready"), "{node:?}");
        let launcher = only_child(pid_of(&child));
        let leash = if ways.is_native(launcher.pid()) { launcher } else { only_child(launcher.pid()) };
        assert!(ways.is_native(leash.pid()), "{node:?}");
        leash.signal(Signal::KILL).expect("it lives");
        let status = child.wait().expect("it was not waited for");
        assert_eq!((status.code(), status.signal()), (Some(128 + 9), None), "{node:?}");
    }
    ways.close();
}

/// The parent of leash without the launcher. The server's stdin stays open here.
#[test]
fn a_killed_parent_of_the_launcher_is_noticed() {
    let ways = Ways::new();
    for words in [ways.native(), ways.shell()].into_iter().chain(ways.nodes()) {
        let mut child = ways.start(&words, &["run", "--", "sh", "-c", SERVER]);
        let _held_open = child.stdin.take().expect("a pipe");
        let mut says = Lines::new(child.stdout.take().expect("a pipe"));
        assert_eq!(says.next(LIMIT).as_deref(), Some("ready"), "{words:?}");
        child.kill().expect("it was not waited for");
        child.wait().expect("it was not waited for");
        if let Err(survivors) = ways.scene.wait_gone(&[]) {
            panic!("{words:?}: {survivors}");
        }
    }
}

/// `leash serve` does not watch its parent, so nothing but the launcher's death can end it.
#[test]
fn a_killed_launcher_takes_every_command_with_it() {
    let ways = Ways::new();
    for node in ways.nodes() {
        let mut child = ways.start(&node, &["serve", "--port", "0", "--", "sh", "-c", SERVER]);
        let launcher = only_child(pid_of(&child));
        let socket = ways.scene.runtime_dir().join("control.sock");
        wait::until("the control socket", || socket.exists().then_some(()));
        launcher.signal(Signal::KILL).expect("it lives");
        child.wait().expect("it was not waited for");
        if let Err(survivors) = ways.scene.wait_gone(&[]) {
            panic!("{node:?}: {survivors}");
        }
        let _ = fs::remove_file(socket);
    }
}
