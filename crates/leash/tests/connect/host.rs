//! A host of `leash connect`: the test itself, over pipes, or a separate process that can be killed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};
use testkit::host::{Host, Manner};
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use crate::upstream::{initialized, result};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A request.
pub(crate) fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#)
}

/// A scene for the user that runs the tests.
pub(crate) fn scene() -> Scene {
    let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
    Scene::set(who).expect("every user can run as itself")
}

/// `leash connect` as a child of the test.
pub(crate) struct Connect {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: std::path::PathBuf,
    says: Option<Said>,
}

impl Connect {
    /// Starts it.
    pub(crate) fn start(scene: &Scene, words: &[&str]) -> Connect {
        let path = scene.dir().join("stderr");
        let stderr = std::fs::File::create(&path).expect("stderr is a file");
        let mut command = scene.leash(["connect"]);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("cannot start leash");
        Connect { stdin: child.stdin.take(), stderr: path, says: child.stdout.take().map(Said::new), child }
    }

    /// Starts it and opens a session.
    pub(crate) fn open(scene: &Scene, words: &[&str]) -> Connect {
        let mut connect = Connect::start(scene, words);
        connect.send(INITIALIZE);
        assert_eq!(connect.next(), initialized(&0.into()), "{}", scene.stderr());
        connect.send(INITIALIZED);
        connect
    }

    /// Writes a line.
    pub(crate) fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Writes any bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes).expect("leash reads");
    }

    /// The next line.
    pub(crate) fn next(&mut self) -> String {
        self.says().next().unwrap_or_else(|| panic!("leash says nothing: {}", self.stderr()))
    }

    fn says(&mut self) -> &mut Said {
        self.says.as_mut().expect("stdout is open")
    }

    /// Closes the reading end of its stdout.
    pub(crate) fn deafen(&mut self) {
        self.says = None;
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The next line that contains a text; the others are kept.
    pub(crate) fn wait(&mut self, text: &str) -> String {
        let found = self.says().wait(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("leash did not say {text}: {}\n{}", self.says().rest(), self.stderr()))
    }

    /// True if it printed nothing more, up to the end of its stdout.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.says().next().is_none() && self.says().rest().is_empty()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a child has a number")
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle::open(self.pid(), |_| true).expect("a child that was not waited for has its number")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.handle().signal(signal).expect("leash can be signalled");
    }

    /// Closes stdin.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its exit, and returns the exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
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

/// The output of leash, line by line, with lines of any length.
struct Said {
    stdout: ChildStdout,
    /// Lines that the test has not asked for yet.
    lines: VecDeque<String>,
    /// The beginning of the next one.
    begun: Vec<u8>,
}

impl Said {
    fn new(stdout: ChildStdout) -> Said {
        Said { stdout, lines: VecDeque::new(), begun: Vec::new() }
    }

    /// Waits for a line that `wanted` accepts; the others are kept. `None` at the end, or after a timeout.
    fn wait(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let mut known = 0;
        loop {
            if let Some(place) = self.lines.iter().skip(known).position(|line| wanted(line)) {
                return self.lines.remove(known + place);
            }
            known = self.lines.len();
            if !wait::ready(&self.stdout, PollFlags::IN, LIMIT) || !self.read() {
                return None;
            }
        }
    }

    fn next(&mut self) -> Option<String> {
        self.wait(|_| true)
    }

    /// The output that was not taken.
    fn rest(&self) -> String {
        let lines: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        lines + &String::from_utf8_lossy(&self.begun)
    }

    /// Reads once. Returns false at the end.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 65536];
        let Ok(count @ 1..) = rustix::io::read(&self.stdout, &mut buffer) else { return false };
        let mut pieces = buffer[..count].split(|byte| *byte == b'\n');
        self.begun.extend_from_slice(pieces.next().unwrap_or_default());
        for piece in pieces {
            let line = std::mem::replace(&mut self.begun, piece.to_vec());
            self.lines.push_back(String::from_utf8_lossy(&line).into_owned());
        }
        true
    }
}

/// A host process with `leash connect` below it, and an open session.
pub(crate) fn open_below(scene: &Scene, manner: &Manner, pty: Option<&Pty>, words: &[&str]) -> Host {
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
