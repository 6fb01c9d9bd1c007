//! A server's stdout: reads it line by line, no faster than the sink takes the lines.

use std::future::{Future, poll_fn};
use std::{cell::Cell, io};

use bytes::Bytes;
use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver, time::timeout};

use crate::metrics::{Counters, add};
use crate::{response_memory::MemoryAccount, state::gateway::Gateway};
use leash_model::{clock::Moment, limits};
use leash_protocol::envelope::Message;
use leash_protocol::frame::{Line, Lines};

/// The receiver of a server's messages.
pub(super) trait MessageSink {
    /// Takes a message and the line that contains it.
    fn message(&self, line: Bytes, message: &Message<'_>);
    /// Notes a line that is not a message.
    fn garbage(&self, what: &str);
    /// True if the server must wait; it has written `begun` bytes of its next line.
    fn is_full(&self, begun: usize) -> bool;
    /// Returns when the server need not wait.
    fn room(&self, begun: usize) -> impl Future<Output = ()>;
    /// The account that the memory of its messages is charged to.
    fn account(&self) -> &MemoryAccount;
}

/// Reads a server's output to its end.
pub(super) async fn read<S: MessageSink>(mut output: Receiver, sink: &S) {
    let mut lines = Lines::new(limits::LINE);
    let mut long_line = None;
    loop {
        // A server that stops in the middle of a long line gives back its permit, so that others can write theirs.
        if long_line.is_some() && timeout(limits::STALLED, readable(&output)).await.is_err() {
            long_line = None;
        }
        // No buffer is allocated while there is nothing to read: most sessions are silent most of the time.
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

fn take<S: MessageSink>(line: Line, sink: &S) {
    match line {
        // An empty line is ignored.
        Line::Whole(line) if line.trim_ascii().is_empty() => {}
        Line::Whole(line) => match Message::read(&line) {
            Ok(message) => sink.message(line.clone(), &message),
            Err(fault) => sink.garbage(&fault.to_string()),
        },
        Line::TooLong { length } => sink.garbage(&format!("a line of {length} bytes")),
    }
}

/// Decides which of many occurrences to report: only the first of a burst.
#[derive(Default)]
pub(super) struct Burst {
    last: Cell<Option<Moment>>,
}

impl Burst {
    /// Records an occurrence; returns true if none was recent.
    pub(super) fn begins(&self) -> bool {
        let now = Moment::on_runtime();
        self.last.replace(Some(now)).is_none_or(|last| now.since(last) > limits::GARBAGE_QUIET)
    }
}

/// Counts a line that is not a message, and warns once per burst.
pub(super) fn garbage(gateway: &Gateway, server: &str, (counters, burst): (&Counters, &Burst), what: &str) {
    add(&counters.garbage_lines, 1);
    if burst.begins() {
        gateway
            .warn(format!("`{server}` wrote a line to its stdout that is not a JSON-RPC message ({what}); dropped it"));
    }
}
