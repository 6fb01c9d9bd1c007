//! Real hosts: the official SDKs drive real servers through `leash run` and without it. Normal work must not differ,
//! and whatever happens to the host, no process of npm, sh, node or python may stay.
//!
//! The hosts are the scripts in `real_hosts/`. `cargo xtask setup` installs what they need.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use testkit::deps::Deps;
use testkit::process::{self, Handle, Process};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

/// The SDKs that hosts are written with.
#[derive(Clone, Copy)]
enum Sdk {
    TypeScript1,
    TypeScript2,
    Python,
}

#[derive(Clone, Copy)]
enum Server {
    /// `npx` -> `sh` -> `node`: three processes for one server, as in most configurations.
    Everything,
    /// One process, and a helper in its own session that ignores SIGTERM.
    Python,
}

/// The program between host and server.
#[derive(Clone, Copy)]
enum Through {
    Nothing,
    Leash(&'static [&'static str]),
}

/// Shorter than the default: after a kill there is no host that would want the server to finish its work.
const SHORT: Through = Through::Leash(&["--grace", "500ms"]);

macro_rules! pairs {
    ($($name:ident: $sdk:ident, $server:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn works_as_without_leash_and_closes() {
                check_same_work(Sdk::$sdk, Server::$server);
            }

            #[test]
            fn killed_leaves_nothing() {
                check_gone_after(Sdk::$sdk, Server::$server, Signal::KILL);
            }

            #[test]
            fn terminated_leaves_nothing() {
                check_gone_after(Sdk::$sdk, Server::$server, Signal::TERM);
            }

            #[test]
            fn killed_leash_of_a_living_host_leaves_nothing() {
                check_gone_after_leash(Sdk::$sdk, Server::$server);
            }
        }
    )*};
}

pairs! {
    typescript_1_with_everything: TypeScript1, Everything;
    typescript_1_with_python: TypeScript1, Python;
    typescript_2_with_everything: TypeScript2, Everything;
    typescript_2_with_python: TypeScript2, Python;
    python_with_everything: Python, Everything;
    python_with_python: Python, Python;
}

/// The reason for leash, and the proof that the witnesses of the tests above can see a survivor.
#[test]
fn without_leash_a_helper_outlives_a_killed_host() {
    let Some(mut stage) = Stage::set() else { return };
    let mut host = stage.start(Sdk::Python, "wait", Server::Python, Through::Nothing);
    stage.wait_ready(&mut host);
    host.signal(Signal::KILL);
    host.wait();
    let left = wait::until("the helper to be alone", || match &stage.scene.census().holders()[..] {
        [one] => Some(one.to_string()),
        _ => None,
    });
    assert!(left.contains("time.sleep(3600)"), "{left}");
    let survivors = stage.scene.wait_gone_within(Duration::ZERO, &[]).expect_err("the helper is still there");
    assert_eq!(survivors.processes.len(), 1, "{survivors}");
}

/// Checks that the answers with leash are the same as without it, and that a close leaves nothing.
fn check_same_work(sdk: Sdk, server: Server) {
    let Some(mut stage) = Stage::set() else { return };
    let mut host = stage.start(sdk, "close", server, Through::Nothing);
    let bare = stage.wait_ready(&mut host);
    stage.wait_closed(&mut host);

    // Another scene: without leash, a helper may be left on the first one.
    let Some(mut stage) = Stage::set() else { return };
    let mut host = stage.start(sdk, "close", server, Through::Leash(&[]));
    let leashed = stage.wait_ready(&mut host);
    assert_eq!(leashed, bare);
    stage.wait_closed(&mut host);
    stage.check_gone();
}

fn check_gone_after(sdk: Sdk, server: Server, signal: Signal) {
    let Some(mut stage) = Stage::set() else { return };
    let mut host = stage.start(sdk, "wait", server, SHORT);
    stage.wait_ready(&mut host);
    stage.check_witnessed(server);
    host.signal(signal);
    host.wait();
    stage.check_gone();
}

/// leash itself is killed while the host lives. A Python host then keeps the server's stdin open. Without leash,
/// killing the only process that the host knows would leave the others running.
fn check_gone_after_leash(sdk: Sdk, server: Server) {
    let Some(mut stage) = Stage::set() else { return };
    let mut host = stage.start(sdk, "wait", server, SHORT);
    stage.wait_ready(&mut host);
    stage.check_witnessed(server);
    host.only_child().signal(Signal::KILL).expect("cannot signal leash");
    let others = |stage: &mut Stage| {
        let holders = stage.scene.census().holders().into_iter();
        holders
            .filter(|process| process.pid != host.handle.pid())
            .map(|process| process.to_string())
            .collect::<Vec<_>>()
    };
    let gone = wait::within(LIMIT, || others(&mut stage).is_empty().then_some(()));
    assert!(gone.is_some(), "survivors: {:#?}", others(&mut stage));
    assert!(host.handle.is_alive(), "the host was not told to end");
    host.signal(Signal::KILL);
    host.wait();
    stage.check_gone();
}

/// A scene for one host, and the packages.
struct Stage {
    scene: Scene,
    deps: Deps,
}

impl Stage {
    /// `None`, with a note, if the packages were never installed.
    fn set() -> Option<Self> {
        let deps = Deps::find().inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok()?;
        let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
        let mut scene = Scene::set(who).expect("every user can run as itself");
        // A test must not download a package that npm does not find in `deps`.
        scene.set_env("npm_config_offline", "true");
        scene.set_env("npm_config_update_notifier", "false");
        Some(Self { scene, deps })
    }

    fn python(&self) -> OsString {
        self.deps.python().into()
    }

    fn server(&self, server: Server) -> Vec<OsString> {
        match server {
            Server::Everything => ["npx", "-y", "@modelcontextprotocol/server-everything"].map(OsString::from).into(),
            Server::Python => vec![self.python(), script("server.py").into()],
        }
    }

    fn start(&mut self, sdk: Sdk, ending: &str, server: Server, through: Through) -> Host {
        let (interpreter, host) = match sdk {
            Sdk::TypeScript1 => ("node".into(), "ts1.mjs"),
            Sdk::TypeScript2 => ("node".into(), "ts2.mjs"),
            Sdk::Python => (self.python(), "py.py"),
        };
        let server = self.server(server);
        let words = match through {
            Through::Nothing => server,
            Through::Leash(options) => self.scene.run_words(options, &server),
        };
        // Each process passes stderr on, so the whole tree holds the census FIFO in its place.
        let census = self.scene.census().path().to_owned();
        let stderr = fs::OpenOptions::new().write(true).open(census).expect("the census can be joined");
        let child = self
            .scene
            .command(interpreter)
            .arg(script(host))
            .arg(ending)
            .args(words)
            // npx and the hosts find their packages here.
            .current_dir(self.deps.npm())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("cannot start the host");
        Host::new(child)
    }

    /// The results of the host after its work: the list, the call and the progress.
    fn wait_ready(&mut self, host: &mut Host) -> Value {
        let line = self.wait_line(host, "READY ");
        let saw: Value = serde_json::from_str(&line).expect("hosts speak JSON");
        let tools: Vec<&str> =
            saw["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(tools.contains(&"echo") && tools.contains(&"trigger-long-running-operation"), "{saw}");
        assert_eq!(saw["echo"][0]["text"], "Echo: hello");
        let steps: Vec<Option<f64>> =
            saw["progress"].as_array().into_iter().flatten().map(|step| step[0].as_f64()).collect();
        assert_eq!(steps, [Some(1.0), Some(2.0), Some(3.0)]);
        saw
    }

    fn wait_closed(&mut self, host: &mut Host) {
        self.wait_line(host, "CLOSED");
        host.wait();
    }

    fn wait_line(&mut self, host: &mut Host, start: &str) -> String {
        match host.wait_line(start) {
            Some(line) => line,
            None => panic!("the host did not say {start}: {}", self.stderr()),
        }
    }

    /// The stderr output: everything on the census FIFO that is not a census line.
    fn stderr(&mut self) -> String {
        self.scene.census().wait_ready(Duration::ZERO).map_or_else(|heard| heard, |_| String::new())
    }

    /// Checks that the witnesses see leash and the server, so that they would see survivors, too.
    fn check_witnessed(&mut self, server: Server) {
        let expected: &[&str] = match server {
            Server::Everything => &["npm exec", "sh", "node"],
            Server::Python => &["server.py", "time.sleep(3600)"],
        };
        let held: Vec<String> = self.scene.census().holders().iter().map(Process::to_string).collect();
        for name in expected {
            assert!(held.iter().any(|process| process.contains(name)), "no {name} in {held:#?}");
        }
    }

    fn check_gone(&mut self) {
        if let Err(survivors) = self.scene.wait_gone(&[]) {
            panic!("{survivors}\nstderr: {}", self.stderr());
        }
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_hosts").join(name)
}

/// A running host.
struct Host {
    child: Child,
    handle: Handle,
    says: ChildStdout,
    heard: Vec<u8>,
}

impl Host {
    fn new(mut child: Child) -> Self {
        let pid = Pid::from_raw(child.id() as i32).expect("a child has a number");
        let handle = Handle::open(pid, |_| true).expect("a child that was not waited for has its number");
        Self { says: child.stdout.take().expect("stdout is a pipe"), child, handle, heard: Vec::new() }
    }

    fn signal(&self, signal: Signal) {
        self.handle.signal(signal).expect("cannot signal the host");
    }

    /// The process that the host started: leash, or the server itself.
    fn only_child(&self) -> Handle {
        let parent = self.handle.pid();
        let children = process::children(parent);
        let [child] = &children[..] else { panic!("the host has not one child but {children:?}") };
        Handle::open(child.pid, |now| now.parent == parent.as_raw_nonzero().get()).expect("leash is gone already")
    }

    fn wait(&mut self) {
        assert!(self.handle.wait_gone(LIMIT), "the host does not end");
        self.child.wait().expect("cannot wait for the host");
    }

    /// The rest of the first line that begins with `start`. `None` if the host ended, or printed nothing in time.
    fn wait_line(&mut self, start: &str) -> Option<String> {
        let mut buffer = [0; 65536];
        loop {
            while let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line[..end]).into_owned();
                if let Some(rest) = line.strip_prefix(start) {
                    return Some(rest.to_owned());
                }
            }
            if !wait::ready(&self.says, PollFlags::IN, LIMIT) {
                return None;
            }
            match rustix::io::read(&self.says, &mut buffer) {
                Ok(got @ 1..) => self.heard.extend_from_slice(&buffer[..got]),
                _ => return None,
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
