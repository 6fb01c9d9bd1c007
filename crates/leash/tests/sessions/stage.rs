//! The members of sessions in these tests.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::wait::{self, LIMIT};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"web","version":"1"}}}"#;

/// No options.
pub(crate) const NONE: [&str; 0] = [];

/// A `leash run` or `leash connect`, held by its stdin. Dropping it kills leash; the scene kills its tree.
pub(crate) struct Joiner {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Joiner {
    /// A process that is held by its stdin.
    pub(crate) fn start(mut command: Command) -> Joiner {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("cannot start leash");
        Joiner { stdin: child.stdin.take(), child }
    }

    /// A run of a tree of the zoo.
    pub(crate) fn run(scene: &Scene, options: &[&str], kind: &str) -> Joiner {
        Joiner::run_words(scene, options, &scene.tree(kind, NONE))
    }

    /// A run of anything.
    pub(crate) fn run_words(scene: &Scene, options: &[&str], server: &[OsString]) -> Joiner {
        let words = scene.run_words(options, server);
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]);
        Joiner::start(command)
    }

    /// A connection that has sent nothing.
    pub(crate) fn connect(scene: &Scene, options: &[&str], url: &str) -> Joiner {
        let mut command = scene.leash(["connect"]);
        command.args(options).arg(url);
        Joiner::start(command)
    }

    /// A connection with an open upstream session.
    pub(crate) fn connect_open(scene: &Scene, options: &[&str], url: &str) -> Joiner {
        let mut joiner = Joiner::connect(scene, options, url);
        let stdin = joiner.stdin.as_mut().expect("it is a pipe");
        stdin.write_all(format!("{INITIALIZE}\n").as_bytes()).expect("leash reads");
        let stdout = joiner.child.stdout.as_ref().expect("it is a pipe");
        assert!(wait::ready(stdout, PollFlags::IN, LIMIT), "no answer to initialize");
        joiner
    }

    pub(crate) fn handle(&self) -> Handle {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a child has a number");
        Handle::open(pid, |_| true).expect("a child that was not waited for has its number")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.handle().signal(signal).expect("it can be signalled");
    }

    /// Waits until leash itself has exited.
    pub(crate) fn wait(&mut self) {
        assert!(self.handle().wait_gone(LIMIT), "leash does not end");
        self.child.wait().expect("it was not waited for");
    }

    /// Waits for the exit of leash; true if its code is 0.
    pub(crate) fn succeeded(mut self) -> bool {
        assert!(self.handle().wait_gone(LIMIT), "leash does not end");
        self.child.wait().expect("it was not waited for").success()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.handle().is_alive()
    }
}

impl Drop for Joiner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An MCP server over HTTP that gives every client a session, and ends it on DELETE.
pub(crate) fn web() -> Upstream {
    let opened = AtomicUsize::new(0);
    Upstream::start(move |seen, wire| match seen.method.as_str() {
        "POST" if seen.text().contains("\"initialize\"") => {
            // The ids begin alike, as those of real servers may.
            let id = format!("session-{}", opened.fetch_add(1, Ordering::Relaxed));
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", id.as_str())];
            wire.answer("200 OK", &headers, INITIALIZED.as_bytes())
        }
        "POST" => wire.answer("202 Accepted", &[], b""),
        "DELETE" => wire.answer("200 OK", &[], b""),
        _ => wire.answer("405 Method Not Allowed", &[], b""),
    })
}

/// The sessions that `leash ps` shows.
pub(crate) fn groups(scene: &Scene) -> Vec<Value> {
    scene.answer(["ps", "--json"]).json()["groups"].as_array().cloned().unwrap_or_default()
}

/// Waits until a session has this many running members.
pub(crate) fn wait_members(scene: &Scene, session: &str, count: usize) -> Value {
    wait::until(&format!("{count} members of {session}"), || {
        let group = groups(scene).into_iter().find(|group| group["session"] == session)?;
        let members = group["members"].as_array()?;
        let run = |member: &&Value| member["state"] == "running";
        (members.len() == count && members.iter().filter(run).count() == count).then_some(group)
    })
}

/// The names of the living sessions.
pub(crate) fn alive(scene: &Scene) -> Vec<String> {
    let name = |group: &Value| group["session"].as_str().unwrap_or_default().to_owned();
    groups(scene).iter().map(name).collect()
}

/// A script for a shell.
pub(crate) fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}
