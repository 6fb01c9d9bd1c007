//! Drives a `zoo host`, which starts a server as a real MCP host does.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::lines::Lines;
use crate::process::{Handle, Process};
use crate::wait::LIMIT;

/// The channel between a host and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Pipes, as a Python, Go or Rust host uses.
    Pipe,
    /// Socketpairs, as a Node or Bun host uses.
    Socketpair,
    /// `/dev/null` as stdin of the server; its stdout is a pipe.
    DevNull,
}

/// The behaviour of a host.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The server's stdin and stdout.
    pub channel: Channel,
    /// The server gets its own process group.
    pub own_group: bool,
    /// The host reads the server's output.
    pub reads: bool,
    /// The host survives these signals.
    pub shrugs: Vec<Signal>,
}

impl Default for Manner {
    fn default() -> Self {
        Self { channel: Channel::Pipe, own_group: false, reads: true, shrugs: Vec::new() }
    }
}

impl Manner {
    /// The arguments of `zoo host`.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let channel = match self.channel {
            Channel::Pipe => "pipe",
            Channel::Socketpair => "socketpair",
            Channel::DevNull => "devnull",
        };
        let mut words: Vec<OsString> = ["host", "--stdin", channel].map(OsString::from).into();
        if self.own_group {
            words.push("--own-group".into());
        }
        if !self.reads {
            words.push("--no-read".into());
        }
        for signal in &self.shrugs {
            words.push("--shrug".into());
            words.push(signal.as_raw().to_string().into());
        }
        words.push("--".into());
        words
    }
}

/// The end of a server, as its host saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
}

/// A running `zoo host`. It is killed when dropped.
#[derive(Debug)]
pub struct Host {
    host: Child,
    orders: Option<ChildStdin>,
    says: Lines<ChildStdout>,
}

impl Host {
    pub(crate) fn new(mut host: Child) -> Self {
        Self {
            orders: host.stdin.take(),
            says: Lines::new(host.stdout.take().expect("the host's stdout is a pipe")),
            host,
        }
    }

    /// The host's own pid; not reused while this value exists.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.host.id() as i32).expect("a child has a number")
    }

    /// The process that the host started.
    pub fn server(&mut self) -> Handle {
        self.order("pid");
        let pid = self
            .says
            .wait(LIMIT, |line| line.strip_prefix("pid ")?.parse().ok())
            .and_then(Pid::from_raw)
            .expect("the host did not print the pid of its server");
        let host = self.pid().as_raw_nonzero().get();
        Handle::open(pid, |process: &Process| process.parent == host).expect("the server of the host is gone already")
    }

    /// Sends one line to the server.
    pub fn send(&mut self, text: &str) {
        self.order(&format!("send {text}"));
    }

    /// Waits for a line of the server.
    pub fn wait_answer(&mut self, text: &str) -> bool {
        let wanted = format!("out {text}");
        self.says.wait(LIMIT, |line| (line == wanted).then_some(())).is_some()
    }

    /// Waits for a line of the server that contains a text.
    pub fn wait_containing(&mut self, text: &str) -> bool {
        self.says.wait(LIMIT, |line| line.strip_prefix("out ")?.contains(text).then_some(())).is_some()
    }

    /// Makes the host close the server's stdin.
    pub fn close_stdin(&mut self) {
        self.order("close-stdin");
    }

    /// Makes the host exit by itself.
    pub fn exit(&mut self) {
        self.order("exit");
    }

    /// Sends a signal to the host.
    #[expect(clippy::disallowed_methods, reason = "a child that was not waited for: its number is its own")]
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("cannot signal the host");
    }

    /// Waits until the host itself has exited.
    pub fn wait(&mut self) {
        // It may wait for the end of its orders.
        self.orders = None;
        self.host.wait().expect("cannot wait for the host");
    }

    /// Waits until the host saw its server end. `None` if it did not within `limit`.
    pub fn wait_ended(&mut self, limit: Duration) -> Option<Ended> {
        self.says.wait(limit, |line| {
            let (how, number) = line.split_once(' ')?;
            let number = number.parse().ok()?;
            match how {
                "exited" => Some(Ended::Exited(number)),
                "killed" => Some(Ended::Killed(number)),
                _ => None,
            }
        })
    }

    fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("the orders of the host are closed");
        writeln!(orders, "{order}").expect("the host does not listen");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.host.kill();
        let _ = self.host.wait();
    }
}
