//! The server without anything in front of it: lines through its own pipes, as a host does.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use super::super::now;
use super::client;
use super::load::{AT_ONCE, RoundTrip};
use super::reply;
use crate::step::{Failure, Outcome};

pub(super) struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The texts that were sent and not answered yet.
    sent: VecDeque<(u64, String)>,
    line: Vec<u8>,
}

impl Pipe {
    pub(super) fn start(mut command: Command) -> Outcome<Self> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| Failure::new(format!("cannot start the server: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the server has no pipes"));
        };
        let output = BufReader::with_capacity(64 << 10, output);
        Ok(Self { child, input, output, sent: VecDeque::new(), line: Vec::new() })
    }

    /// Makes one call after the other for `time`.
    pub(super) fn one_by_one(&mut self, time: Duration) -> Outcome<RoundTrip> {
        let mut micros = Vec::new();
        let start = now();
        let mut before = start;
        while before - start < time {
            self.send()?;
            self.receive()?;
            let after = now();
            micros.push((after - before).as_secs_f64() * 1e6);
            before = after;
        }
        Ok(RoundTrip::of(micros))
    }

    /// Makes as many calls as the server answers within `time`, with a fixed number always pending.
    pub(super) fn at_once(&mut self, time: Duration) -> Outcome<(u64, Duration)> {
        let start = now();
        (0..AT_ONCE).try_for_each(|_| self.send())?;
        let mut calls = 0;
        while now() - start < time {
            self.receive()?;
            self.send()?;
            calls += 1;
        }
        while !self.sent.is_empty() {
            self.receive()?;
            calls += 1;
        }
        Ok((calls, now() - start))
    }

    fn send(&mut self) -> Outcome {
        let id = client::next_id();
        let mut body = String::with_capacity(client::LINE + 64);
        let text = client::call("echo", id, &mut body);
        self.sent.push_back((id, body[text].to_owned()));
        body.push('\n');
        self.input.write_all(body.as_bytes()).map_err(|error| Failure::new(format!("the server is gone: {error}")))
    }

    /// The answers arrive in the order of the calls: this server does one thing at a time.
    fn receive(&mut self) -> Outcome {
        self.line.clear();
        let read = self.output.read_until(b'\n', &mut self.line);
        read.map_err(|error| Failure::new(format!("the server does not answer: {error}")))?;
        let line = self.line.trim_ascii_end();
        let (id, text) = self.sent.pop_front().ok_or_else(|| Failure::new("nothing was asked"))?;
        match reply::find(line, id) {
            Some(reply) if reply.is_text(&text) => Ok(()),
            _ => Err(Failure::new(format!("the server answered {}", String::from_utf8_lossy(line)))),
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(super) fn finish(self) -> Outcome {
        let Self { mut child, input, output, .. } = self;
        drop((input, output));
        let status = child.wait().map_err(|error| Failure::new(error.to_string()))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("the server ended with {status}"))),
        }
    }
}
