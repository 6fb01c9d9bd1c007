//! Reads the output of another process line by line, with a deadline.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::wait::{self, Deadline};

/// The reader of a pipe. It keeps lines that the test has not asked for yet.
#[derive(Debug)]
pub struct Lines<P> {
    pipe: P,
    heard: Vec<u8>,
}

impl<P: AsFd> Lines<P> {
    /// Reads from `pipe`.
    pub fn new(pipe: P) -> Self {
        Self { pipe, heard: Vec::new() }
    }

    /// Waits for a line that `wanted` accepts, and removes it; the other lines are kept. `None` after `limit`, or at
    /// the end.
    pub fn wait<T>(&mut self, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Deadline::after(limit);
        loop {
            if let Some(found) = self.take(&wanted) {
                return Some(found);
            }
            if !wait::ready(&self.pipe, PollFlags::IN, deadline.left()) || !self.listen() {
                return None;
            }
        }
    }

    /// Waits for the next line. `None` after `limit`, or at the end.
    pub fn next(&mut self, limit: Duration) -> Option<String> {
        self.wait(limit, |line| Some(line.to_owned()))
    }

    /// The text that was read and not removed.
    pub fn rest(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    fn take<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut start = 0;
        while let Some(length) = self.heard[start..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.heard[start..start + length]);
            if let Some(found) = wanted(&line) {
                self.heard.drain(start..=start + length);
                return Some(found);
            }
            start += length + 1;
        }
        None
    }

    /// Reads once. Returns false at the end.
    fn listen(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match rustix::io::read(&self.pipe, &mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(got) => {
                self.heard.extend_from_slice(&buffer[..got]);
                true
            }
        }
    }
}
