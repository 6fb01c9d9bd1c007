//! A server's stdout: lines in, one by one, as fast as somebody takes them.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::super::gateway::Gateway;
use super::super::held::Account;
use super::super::metrics::{Counters, add};
use leash_model::clock::Moment;
use leash_model::limits;
use leash_protocol::envelope::Message;
use leash_protocol::frame::{Line, Lines};

/// Who takes a server's messages.
pub(super) trait Sink {
    /// A message, and the line that it is.
    fn message(&self, line: Bytes, message: &Message<'_>);
    /// A line that is no message.
    fn garbage(&self, what: &str);
    /// Whether the server must wait, which has written so many bytes of its next line.
    fn is_full(&self, begun: usize) -> bool;
    /// Returns when it must not.
    fn room(&self, begun: usize) -> impl Future<Output = ()>;
    /// What its messages take.
    fn account(&self) -> &Account;
}

/// Reads a server's output to its end.
pub(super) async fn read<S: Sink>(mut output: Receiver, sink: &S) {
    let mut lines = Lines::new(limits::LINE);
    let mut long_line = None;
    loop {
        // A server that stops in the middle of a long line does not keep others from theirs.
        if long_line.is_some() && timeout(limits::STALLED, readable(&output)).await.is_err() {
            long_line = None;
        }
        // While there is nothing to read there is no buffer either: most sessions are silent most of the time.
        if readable(&output).await.is_err() {
            break;
        }
        match output.read_buf(lines.buffer()).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        while let Some(line) = lines.next_line() {
            take(line, sink);
        }
        if lines.is_empty() {
            lines = Lines::new(limits::LINE);
        }
        if lines.len() <= limits::UNREAD_STREAMS {
            long_line = None;
        }
        if sink.is_full(lines.len()) {
            long_line = None;
            sink.room(lines.len()).await;
        }
        if lines.len() > limits::UNREAD_STREAMS && long_line.is_none() {
            long_line = sink.account().long_line().await;
        }
    }
    while let Some(line) = lines.finish() {
        take(line, sink);
    }
}

async fn readable(output: &Receiver) -> io::Result<()> {
    poll_fn(|cx| output.poll_read_ready(cx)).await
}

fn take<S: Sink>(line: Line, sink: &S) {
    match line {
        // An empty line says nothing, and harms nobody.
        Line::Whole(line) if line.trim_ascii().is_empty() => {}
        Line::Whole(line) => match Message::read(&line) {
            Ok(message) => sink.message(line.clone(), &message),
            Err(fault) => sink.garbage(&fault.to_string()),
        },
        Line::TooLong { length } => sink.garbage(&format!("a line of {length} bytes")),
    }
}

/// Something that is worth a word when it begins, and not every time.
#[derive(Default)]
pub(super) struct Burst {
    last: Cell<Option<Moment>>,
}

impl Burst {
    /// It happens; whether it has not for a while.
    pub(super) fn begins(&self) -> bool {
        let now = Moment::now();
        self.last.replace(Some(now)).is_none_or(|last| now.since(last) > limits::GARBAGE_QUIET)
    }
}

/// Counts a line that is no message, and says so once a burst.
pub(super) fn garbage(gateway: &Gateway, server: &str, (counters, burst): (&Counters, &Burst), what: &str) {
    add(&counters.garbage_lines, 1);
    if burst.begins() {
        gateway.warn(format!("`{server}` writes to its stdout what is no protocol ({what}); it is dropped"));
    }
}
