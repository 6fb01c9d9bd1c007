//! The streams of a session and what is kept of them for `Last-Event-ID`; pure.
//!
//! A stream is an answer to a POST, or the GET stream ([`GET`]). Its messages are numbered from 1. One connection at a time reads
//! it. Messages that were handed out are kept while there is room, the oldest given up first; messages that nobody reads are
//! kept until somebody does, or until they alone are more than there is room for.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;

use super::super::held::Queued;
use super::sleeper::Sleeper;

/// A stream's number within its session; POSTs count from 1.
pub(super) type StreamId = u64;

/// The stream of what belongs to no request.
pub(super) const GET: StreamId = 0;

/// All streams of one session.
#[derive(Debug)]
pub(super) struct Log {
    streams: BTreeMap<StreamId, Stream>,
    /// The stream of every message that was handed out and is still kept, in the order in which that happened.
    delivered: VecDeque<StreamId>,
    /// Bytes and number of all kept messages.
    bytes: usize,
    messages: usize,
    /// Bytes that wait for the connections that read.
    unread: usize,
    /// Bytes that may be kept.
    room: usize,
    /// Messages that were given up before anybody read them.
    lost: u64,
}

#[derive(Debug, Default)]
struct Stream {
    messages: VecDeque<Bytes>,
    /// The number of the first message that is kept.
    first: u64,
    /// The number of the next message to hand out.
    next: u64,
    /// The connection that reads; a later one has a higher number and takes the place of an earlier one.
    reader: u32,
    reading: bool,
    sleeper: Sleeper,
    /// Nothing more will come.
    done: bool,
    /// The client knows the id of one of its events, by which it can resume.
    named: bool,
    /// It has more than answers.
    mixed: bool,
    /// Something was handed out since [`Log::look`].
    moved: bool,
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A message and its number.
    Message(u64, Bytes),
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    End,
    /// Another connection reads the stream now, or this one was too slow.
    Cut,
}

impl Log {
    pub(super) fn new(room: usize) -> Log {
        let (streams, delivered) = (BTreeMap::new(), VecDeque::new());
        Log { streams, delivered, bytes: 0, messages: 0, unread: 0, room, lost: 0 }
    }

    /// A new stream with a connection that reads it.
    pub(super) fn open(&mut self, id: StreamId) {
        let stream = Stream { first: 1, next: 1, reading: true, ..Stream::default() };
        self.streams.insert(id, stream);
    }

    /// Adds a message. `false`: there is no such stream any more, because its reader left and can't come back.
    pub(super) fn push(&mut self, id: StreamId, message: Bytes) -> bool {
        if id == GET && !self.streams.contains_key(&GET) {
            self.streams.insert(GET, Stream { first: 1, next: 1, ..Stream::default() });
        }
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        self.bytes += message.len();
        self.messages += 1;
        if stream.reading {
            self.unread += message.len();
        }
        stream.messages.push_back(message);
        stream.sleeper.wake();
        self.make_room();
        true
    }

    /// Nothing more comes on this stream.
    pub(super) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.done = true;
            stream.sleeper.wake();
            self.forget_if_empty(id);
        }
    }

    /// Nothing more comes on any stream.
    pub(super) fn finish_all(&mut self) {
        let ids: Vec<_> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.finish(id));
    }

    /// The next message for a reader, who is woken when there is one.
    pub(super) fn next(&mut self, id: StreamId, reader: u32, waker: &Waker) -> Next {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_read_by(reader)) else {
            return Next::Cut;
        };
        let Some(message) = stream.messages.get(stream.unread_from()).cloned() else {
            if stream.done {
                return Next::End;
            }
            stream.sleeper.wait(waker);
            return Next::Wait;
        };
        let number = stream.next;
        stream.next += 1;
        (stream.named, stream.moved) = (true, true);
        self.unread -= message.len();
        self.delivered.push_back(id);
        self.make_room();
        Next::Message(number, message)
    }

    /// Not only answers are on this stream: it can't be taken whole.
    pub(super) fn mix(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.mixed = true;
            stream.sleeper.wake();
        }
    }

    /// Whether it can't be taken whole; nor can one that is not known.
    pub(super) fn is_mixed(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.mixed)
    }

    /// The whole stream as one piece, if it is over and nothing of it was handed out; it is forgotten then.
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
            stream.sleeper.wake();
        }
    }

    /// Wakes the reader of a stream when something happens to it.
    pub(super) fn wake_on_change(&mut self, id: StreamId, waker: &Waker) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sleeper.wait(waker);
        }
    }

    /// The number of the message that was handed out last, 0 before the first. The client is given it, and can resume by it.
    pub(super) fn name(&mut self, id: StreamId) -> u64 {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.named = true;
        stream.next - 1
    }

    /// Whether a connection reads this stream.
    pub(super) fn is_read(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reading)
    }

    /// Whether somebody reads this stream or may come back to it.
    pub(super) fn is_reachable(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.reading || stream.named)
    }

    /// A connection begins to read the GET stream where the last one stopped; the number is the reader's.
    pub(super) fn listen(&mut self) -> u32 {
        let stream = self.streams.entry(GET).or_insert_with(|| Stream { first: 1, next: 1, ..Stream::default() });
        if stream.reading {
            self.unread -= stream.unread_bytes();
        }
        self.unread += stream.attach();
        stream.reader
    }

    /// A connection reads a stream from the message after `seen`. `None`: the stream is not known, or `seen` is not of it.
    pub(super) fn resume(&mut self, id: StreamId, seen: u64) -> Option<u32> {
        let stream = self.streams.get_mut(&id).filter(|stream| seen < stream.next)?;
        if stream.reading {
            self.unread -= stream.unread_bytes();
        }
        // What was given up meanwhile is missing; the rest is better than nothing.
        let from = (seen + 1).max(stream.first);
        let again = stream.next.saturating_sub(from);
        stream.next = from;
        self.unread += stream.attach();
        let reader = stream.reader;
        // What is read again is no longer what was delivered last of this stream.
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

    /// A reader is gone. What it had not read and nobody can ask for any more is handed back.
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
        stream.sleeper.wake();
        if stream.named || id == GET {
            self.forget_if_empty(id);
            return VecDeque::new();
        }
        // A client has to name an event to come back, and this one was never given any.
        let orphans = self.streams.remove(&id).map(|stream| stream.messages).unwrap_or_default();
        self.bytes -= orphans.iter().map(Bytes::len).sum::<usize>();
        self.messages -= orphans.len();
        orphans
    }

    /// What waits for connections, and what is too large to be kept and waits for one to come.
    pub(super) fn queued(&self) -> Queued {
        Queued { unread: self.unread, unclaimed: (self.bytes - self.unread).saturating_sub(self.room) }
    }

    /// The connection that reads a stream took something.
    pub(super) fn moved(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.moved = true;
        }
    }

    /// Begins to watch whether readers read.
    pub(super) fn look(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.moved = false);
    }

    /// Cuts the readers that had something to read and took nothing since [`Log::look`]; what is handed back is as in
    /// [`Log::leave`].
    #[must_use]
    pub(super) fn cut_stalled(&mut self) -> VecDeque<Bytes> {
        let stalled = |stream: &Stream| stream.reading && !stream.moved && stream.unread_bytes() > 0;
        let ids: Vec<_> = self.streams.iter().filter(|(_, stream)| stalled(stream)).map(|(id, _)| *id).collect();
        let orphans = ids.into_iter().flat_map(|id| self.detach(id)).collect();
        self.make_room();
        orphans
    }

    /// Messages given up unread since the last time this was asked.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Gives up what there is no room for.
    fn make_room(&mut self) {
        while self.bytes > self.room {
            if let Some(id) = self.delivered.pop_front() {
                self.give_up_first(id);
                continue;
            }
            // Everything that is left is unread. What nobody reads goes, the oldest stream first; but one message alone may be
            // larger than all the room, and stays until it is delivered.
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

    /// A stream that is over, read by nobody, and of which nothing is kept.
    fn forget_if_empty(&mut self, id: StreamId) {
        let gone = |stream: &Stream| stream.done && !stream.reading && stream.messages.is_empty();
        if self.streams.get(&id).is_some_and(gone) {
            self.streams.remove(&id);
        }
    }
}

impl Stream {
    fn is_read_by(&self, reader: u32) -> bool {
        self.reading && self.reader == reader
    }

    /// Where in the queue the first unread message is.
    fn unread_from(&self) -> usize {
        usize::try_from(self.next - self.first).unwrap_or(usize::MAX)
    }

    fn unread_bytes(&self) -> usize {
        self.messages.iter().skip(self.unread_from()).map(Bytes::len).sum()
    }

    /// A new reader; the bytes that wait for it.
    fn attach(&mut self) -> usize {
        (self.reading, self.reader) = (true, self.reader + 1);
        // The reader before it, if there is one, sees that it was replaced.
        self.sleeper.wake();
        self.unread_bytes()
    }
}

#[cfg(test)]
mod tests;
