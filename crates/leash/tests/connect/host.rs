//! A host of `leash connect`: the test itself, over pipes, or a process of its own that can be killed.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::{Pid, Signal};
use testkit::host::{Host, Manner};
use testkit::lines::Lines;
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::upstream::{initialized, result};

pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A request.
pub fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#)
}

/// A stage for the user that runs the tests.
pub fn scene() -> Scene {
    let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
    Scene::set(who).expect("everybody can be themselves")
}

/// `leash connect` as a child of the test.
pub struct Connect {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: std::path::PathBuf,
    says: Lines<ChildStdout>,
}

impl Connect {
    /// Starts it.
    pub fn start(scene: &Scene, words: &[&str]) -> Connect {
        let path = scene.dir().join("stderr");
        let stderr = std::fs::File::create(&path).expect("stderr is a file");
        let mut command = scene.leash(["connect"]);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("cannot start leash");
        Connect {
            stdin: child.stdin.take(),
            stderr: path,
            says: Lines::new(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    /// Starts it and opens a session.
    pub fn open(scene: &Scene, words: &[&str]) -> Connect {
        let mut connect = Connect::start(scene, words);
        connect.send(INITIALIZE);
        assert_eq!(connect.next(), initialized(&0.into()), "{}", scene.stderr());
        connect.send(INITIALIZED);
        connect
    }

    /// Writes a line.
    pub fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Writes anything.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes).expect("leash reads");
    }

    /// The next line.
    pub fn next(&mut self) -> String {
        self.says.next(LIMIT).unwrap_or_else(|| panic!("leash says nothing: {}", self.stderr()))
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The next line that contains a text; others are kept.
    pub fn wait(&mut self, text: &str) -> String {
        let found = self.says.wait(LIMIT, |line| line.contains(text).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("leash did not say {text}: {}\n{}", self.says.rest(), self.stderr()))
    }

    /// Whether it has said nothing more, up to the end of its stdout.
    pub fn is_silent(&mut self) -> bool {
        self.says.next(LIMIT).is_none() && self.says.rest().is_empty()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a child has a number")
    }

    pub fn handle(&self) -> Handle {
        Handle::open(self.pid(), |_| true).expect("a child that was not waited for has its number")
    }

    pub fn signal(&self, signal: Signal) {
        self.handle().signal(signal).expect("leash can be signalled");
    }

    /// Closes stdin.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end; its exit code.
    pub fn code(&mut self) -> Option<i32> {
        assert!(self.handle().wait_gone(LIMIT), "leash does not end");
        self.child.wait().expect("it was not waited for").code()
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host process with `leash connect` below it, and a session that is open.
pub fn open_below(scene: &Scene, manner: &Manner, pty: Option<&Pty>, words: &[&str]) -> Host {
    let mut command: Vec<OsString> = vec![scene.leash_path().into(), "connect".into()];
    command.extend(words.iter().map(OsString::from));
    let mut host = scene.host(manner, pty, &command);
    host.send(INITIALIZE);
    assert!(host.wait_answer(&initialized(&0.into())), "no session: {}", scene.stderr());
    host.send(INITIALIZED);
    host.send(&call(1));
    assert!(host.wait_answer(&result(&1.into(), "session-1")), "no answer: {}", scene.stderr());
    host
}
