//! A reader of event streams with as little code as the standard allows, and none of leash's.

use std::io;

use crate::http::Connection;
use crate::wait::{Deadline, LIMIT};

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: Option<Vec<u8>>,
    /// The bytes of its data; `None` for a comment or a `retry` alone.
    pub data: Option<Vec<u8>>,
}

/// Returns the events of a complete stream whose lines end with LF.
pub fn parse(stream: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = stream;
    while let Some(length) = end(rest) {
        events.push(read(&rest[..length]));
        rest = &rest[length..];
    }
    events
}

/// The length of the first event, including its blank line.
fn end(stream: &[u8]) -> Option<usize> {
    stream.windows(2).position(|pair| pair == b"\n\n").map(|at| at + 2)
}

fn read(text: &[u8]) -> Event {
    let mut event = Event::default();
    for line in text.split(|byte| *byte == b'\n') {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        match name {
            b"id" => event.id = Some(value.to_vec()),
            b"data" => match &mut event.data {
                Some(data) => data.extend([b"\n", value].concat()),
                none => *none = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    event
}

/// The event stream in the response on a connection, read as it arrives.
#[derive(Debug)]
pub struct Events {
    connection: Connection,
    heard: Vec<u8>,
}

impl Events {
    /// Continues after the head of the response.
    pub fn new(connection: Connection) -> Self {
        Self { connection, heard: Vec::new() }
    }

    /// The data of the next event with data that is not empty; `None` at the end.
    pub fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let deadline = Deadline::after(LIMIT);
        loop {
            let Some(event) = self.event()? else { return Ok(None) };
            // A stream with keep-alive comments never pauses, so the read timeout alone would not end this.
            if deadline.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Ok(Some(data));
            }
        }
    }

    /// The next event of any kind; `None` at the end.
    pub fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(length) = end(&self.heard) {
                let raw: Vec<u8> = self.heard.drain(..length).collect();
                return Ok(Some(read(&raw)));
            }
            match self.connection.chunk()? {
                Some(chunk) => self.heard.extend(chunk),
                None => return Ok(None),
            }
        }
    }

    /// Returns the connection. Bytes that were read ahead are lost.
    pub fn into_connection(self) -> Connection {
        self.connection
    }
}
