//! The streams of a session and the messages kept for `Last-Event-ID`; pure.
//!
//! A stream is an answer to a POST, or the GET stream ([`GET`]). Its messages are numbered from 1. One connection at a
//! time reads it. The log keeps delivered messages while there is room, and drops the oldest first. It keeps
//! undelivered messages of a stream without a reader until a connection reads them, or until they alone exceed the
//! room.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;

use super::waiting_task::WaitingTask;
use crate::response_memory::QueuedBytes;

/// A stream's number within its session; POSTs count from 1.
pub(super) type StreamId = u64;

/// The stream of messages that belong to no request.
pub(super) const GET: StreamId = 0;

/// All streams of one session.
#[derive(Debug)]
pub(super) struct StreamLog {
    streams: BTreeMap<StreamId, LogStream>,
    /// The stream of every message that was delivered and is still kept, in the order of delivery.
    delivered: VecDeque<StreamId>,
    /// Bytes and number of all kept messages.
    bytes: usize,
    messages: usize,
    /// Bytes that wait for the connections that read.
    unread: usize,
    /// Bytes that may be kept.
    room: usize,
    /// The number of messages that were dropped before a connection read them.
    lost: u64,
}

#[derive(Debug, Default)]
struct LogStream {
    messages: VecDeque<Bytes>,
    /// The number of the first message that is kept.
    first: u64,
    /// The number of the next message to deliver.
    next: u64,
    /// The connection that reads; a later one has a higher number and takes the place of an earlier one.
    reader: u32,
    reading: bool,
    waiting_task: WaitingTask,
    /// No more messages will come.
    done: bool,
    /// The client knows the id of one of its events, by which it can resume.
    named: bool,
    /// It has other messages besides answers.
    mixed: bool,
    /// A message was delivered since [`StreamLog::start_observing`].
    moved: bool,
}

/// The result of reading a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextMessage {
    /// A message and its number.
    Message(u64, Bytes),
    /// No message yet.
    Wait,
    /// No more messages.
    End,
    /// Another connection reads the stream now, or this one was too slow.
    Cut,
}

impl StreamLog {
    pub(super) fn new(room: usize) -> StreamLog {
        let (streams, delivered) = (BTreeMap::new(), VecDeque::new());
        StreamLog { streams, delivered, bytes: 0, messages: 0, unread: 0, room, lost: 0 }
    }

    /// Opens a new stream with a connection that reads it.
    pub(super) fn open(&mut self, id: StreamId) {
        let stream = LogStream { first: 1, next: 1, reading: true, ..LogStream::default() };
        self.streams.insert(id, stream);
    }

    /// Adds a message. Returns false if the stream was removed, because its reader left and cannot come back.
    pub(super) fn push(&mut self, id: StreamId, message: Bytes) -> bool {
        if id == GET && !self.streams.contains_key(&GET) {
            self.streams.insert(GET, LogStream { first: 1, next: 1, ..LogStream::default() });
        }
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        self.bytes += message.len();
        self.messages += 1;
        if stream.reading {
            self.unread += message.len();
        }
        stream.messages.push_back(message);
        stream.waiting_task.wake();
        self.make_room();
        true
    }

    /// Marks a stream as complete.
    pub(super) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.done = true;
            stream.waiting_task.wake();
            self.forget_if_empty(id);
        }
    }

    /// Marks all streams as complete.
    pub(super) fn finish_all(&mut self) {
        let ids: Vec<_> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.finish(id));
    }

    /// Returns the next message for a reader; without one, wakes the reader when there is one.
    pub(super) fn next(&mut self, id: StreamId, reader: u32, waker: &Waker) -> NextMessage {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_read_by(reader)) else {
            return NextMessage::Cut;
        };
        let Some(message) = stream.messages.get(stream.unread_from()).cloned() else {
            if stream.done {
                return NextMessage::End;
            }
            stream.waiting_task.wait(waker);
            return NextMessage::Wait;
        };
        let number = stream.next;
        stream.next += 1;
        (stream.named, stream.moved) = (true, true);
        self.unread -= message.len();
        self.delivered.push_back(id);
        self.make_room();
        NextMessage::Message(number, message)
    }

    /// Notes that other messages than answers are on this stream: it cannot be taken whole.
    pub(super) fn mix(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.mixed = true;
            stream.waiting_task.wake();
        }
    }

    /// True if the stream cannot be taken whole, or is not known.
    pub(super) fn is_mixed(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.mixed)
    }

    /// Removes and returns the whole stream if it is complete and none of its messages was delivered.
    pub(super) fn take(&mut self, id: StreamId) -> Option<VecDeque<Bytes>> {
        self.streams.get(&id).filter(|stream| stream.done && stream.next == 1)?;
        let stream = self.streams.remove(&id)?;
        let bytes = stream.unread_bytes();
        self.bytes -= bytes;
        self.messages -= stream.messages.len();
        if stream.reading {
            self.unread -= bytes;
        }
        Some(stream.messages)
    }

    /// Wakes the reader of a stream.
    pub(super) fn wake(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.waiting_task.wake();
        }
    }

    /// Wakes the reader of a stream when something happens to it.
    pub(super) fn wake_on_change(&mut self, id: StreamId, waker: &Waker) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.waiting_task.wait(waker);
        }
    }

    /// The number of the last delivered message, 0 before the first. The caller gives it to the client, which can
    /// resume by it.
    pub(super) fn name(&mut self, id: StreamId) -> u64 {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.named = true;
        stream.next - 1
    }

    /// True if a connection reads this stream.
    pub(super) fn is_read(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reading)
    }

    /// True if a connection reads this stream, or the client can resume it.
    pub(super) fn is_reachable(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reading || stream.named)
    }

    /// Lets a new connection read the GET stream from where the last one stopped; returns the reader's number.
    pub(super) fn listen(&mut self) -> u32 {
        let stream = self.streams.entry(GET).or_insert_with(|| LogStream { first: 1, next: 1, ..LogStream::default() });
        if stream.reading {
            self.unread -= stream.unread_bytes();
        }
        self.unread += stream.attach();
        stream.reader
    }

    /// Lets a new connection read a stream from the message after `seen`. `None` if the stream is not known, or message
    /// `seen` was never delivered on it.
    pub(super) fn resume(&mut self, id: StreamId, seen: u64) -> Option<u32> {
        let stream = self.streams.get_mut(&id).filter(|stream| seen < stream.next)?;
        if stream.reading {
            self.unread -= stream.unread_bytes();
        }
        // Messages dropped meanwhile are missing; the client gets the rest.
        let from = (seen + 1).max(stream.first);
        let again = stream.next.saturating_sub(from);
        stream.next = from;
        self.unread += stream.attach();
        let reader = stream.reader;
        // The messages to be read again no longer count as delivered. They are the last delivered ones of this stream.
        let mut left = again;
        for at in (0..self.delivered.len()).rev() {
            if left == 0 {
                break;
            }
            if self.delivered[at] == id {
                self.delivered.remove(at);
                left -= 1;
            }
        }
        Some(reader)
    }

    /// Detaches a reader that is gone. Returns its unread messages if the client cannot resume the stream.
    #[must_use]
    pub(super) fn leave(&mut self, id: StreamId, reader: u32) -> VecDeque<Bytes> {
        if !self.streams.get(&id).is_some_and(|stream| stream.is_read_by(reader)) {
            return VecDeque::new();
        }
        let orphans = self.detach(id);
        self.make_room();
        orphans
    }

    fn detach(&mut self, id: StreamId) -> VecDeque<Bytes> {
        let Some(stream) = self.streams.get_mut(&id) else { return VecDeque::new() };
        self.unread -= stream.unread_bytes();
        (stream.reading, stream.reader) = (false, stream.reader + 1);
        stream.waiting_task.wake();
        if stream.named || id == GET {
            self.forget_if_empty(id);
            return VecDeque::new();
        }
        // A client must name an event to resume, and this client was never given one.
        let orphans = self.streams.remove(&id).map(|stream| stream.messages).unwrap_or_default();
        self.bytes -= orphans.iter().map(Bytes::len).sum::<usize>();
        self.messages -= orphans.len();
        orphans
    }

    /// The bytes that wait for connections, and the bytes beyond the room that wait on streams without one.
    pub(super) fn queued(&self) -> QueuedBytes {
        QueuedBytes { unread: self.unread, unclaimed: (self.bytes - self.unread).saturating_sub(self.room) }
    }

    /// Notes that the connection that reads a stream took a message.
    pub(super) fn moved(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.moved = true;
        }
    }

    /// Starts an observation period for [`StreamLog::cut_stalled`].
    pub(super) fn start_observing(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.moved = false);
    }

    /// Cuts the readers that had messages to read and took none since [`StreamLog::start_observing`]. Returns messages
    /// as [`StreamLog::leave`] does.
    #[must_use]
    pub(super) fn cut_stalled(&mut self) -> VecDeque<Bytes> {
        let stalled = |stream: &LogStream| stream.reading && !stream.moved && stream.unread_bytes() > 0;
        let ids: Vec<_> = self.streams.iter().filter(|(_, stream)| stalled(stream)).map(|(id, _)| *id).collect();
        let orphans = ids.into_iter().flat_map(|id| self.detach(id)).collect();
        self.make_room();
        orphans
    }

    /// Returns the number of messages dropped unread since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Drops messages until the rest fits into the room.
    fn make_room(&mut self) {
        while self.bytes > self.room {
            if let Some(id) = self.delivered.pop_front() {
                self.give_up_first(id);
                continue;
            }
            // All remaining messages are unread. Those without a reader are dropped, the oldest stream first. A single
            // message may exceed the room, and stays until it is delivered.
            let unread = self.streams.iter().find(|(_, stream)| !stream.reading && !stream.messages.is_empty());
            match unread.map(|(id, _)| *id) {
                Some(id) if self.messages > 1 => {
                    self.lost += 1;
                    self.give_up_first(id);
                }
                _ => return,
            }
        }
    }

    fn give_up_first(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(message) = stream.messages.pop_front() {
            stream.first += 1;
            stream.next = stream.next.max(stream.first);
            self.bytes -= message.len();
            self.messages -= 1;
        }
        self.forget_if_empty(id);
    }

    /// Removes a stream that is complete, has no reader, and has no messages left.
    fn forget_if_empty(&mut self, id: StreamId) {
        let gone = |stream: &LogStream| stream.done && !stream.reading && stream.messages.is_empty();
        if self.streams.get(&id).is_some_and(gone) {
            self.streams.remove(&id);
        }
    }
}

impl LogStream {
    fn is_read_by(&self, reader: u32) -> bool {
        self.reading && self.reader == reader
    }

    /// The index of the first unread message in the queue.
    fn unread_from(&self) -> usize {
        usize::try_from(self.next - self.first).unwrap_or(usize::MAX)
    }

    fn unread_bytes(&self) -> usize {
        self.messages.iter().skip(self.unread_from()).map(Bytes::len).sum()
    }

    /// Attaches a new reader; returns the bytes that wait for it.
    fn attach(&mut self) -> usize {
        (self.reading, self.reader) = (true, self.reader + 1);
        // Wakes the previous reader, if there is one, so that it sees that it was replaced.
        self.waiting_task.wake();
        self.unread_bytes()
    }
}

#[cfg(test)]
mod tests;
