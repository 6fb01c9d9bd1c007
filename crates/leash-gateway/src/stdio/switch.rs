//! Decides which stream a server's message goes to; pure.
//!
//! A response goes to the POST that asked; progress to the POST whose token it names. Every other message has no
//! address on the pipe. Exactly one stream gets it, the first of these that exists:
//!
//! 1. the only POST in flight, so that the message keeps its place before the result;
//! 2. the GET stream, if a connection reads it;
//! 3. the POST in flight that began last, one that is read before one that may be resumed;
//! 4. the GET stream, where it waits until a connection reads it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::exit::UnansweredError;
use super::log::{GET, StreamId, StreamLog};
use super::window::TimerTurns;
use leash_model::limits;
use leash_protocol::envelope::{Envelope, EnvelopeKind, IdKey, Message, codes, error_body};

/// The requests in flight in a session, and the streams on which they are answered.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) log: StreamLog,
    /// Requests that were not answered yet.
    requests: HashMap<IdKey, RequestInFlight>,
    /// The streams of progress tokens.
    tokens: HashMap<IdKey, StreamId>,
    /// POSTs with unanswered requests, in the order in which they began.
    posts: Vec<PostInFlight>,
    last: StreamId,
    /// The approximate memory of the requests in flight, in bytes.
    request_bytes: usize,
}

/// The approximate memory of a request in flight besides its id and its token.
const RECORD: usize = 128;

/// A request in flight.
#[derive(Debug)]
struct RequestInFlight {
    stream: StreamId,
    token: Option<IdKey>,
    cancelled: bool,
}

/// A POST in flight.
#[derive(Debug)]
struct PostInFlight {
    stream: StreamId,
    /// The number of its requests that are not answered yet.
    owed: usize,
    turns: TimerTurns,
}

/// A request that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewRequest {
    pub(super) key: IdKey,
    pub(super) token: Option<IdKey>,
}

impl NewRequest {
    /// The request in an envelope; `None` if it is something else.
    pub(super) fn of(envelope: &Envelope<'_>) -> Option<NewRequest> {
        if envelope.kind != EnvelopeKind::Request {
            return None;
        }
        let token = envelope.progress_token().and_then(IdKey::of);
        Some(NewRequest { key: envelope.key()?, token })
    }
}

/// The reason that a request cannot begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CannotBegin {
    /// Its id is in flight already.
    Duplicate(IdKey),
    /// Too many requests are in flight.
    TooMany,
}

/// The form of the answer to a POST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostAnswer {
    /// Not decided yet.
    Wait,
    /// By one body.
    Whole(Bytes),
    /// By a stream: other messages come besides the answers, or the answer is late.
    Stream,
}

impl Switch {
    pub(super) fn new(room: usize) -> Switch {
        let (requests, tokens, posts) = (HashMap::new(), HashMap::new(), Vec::new());
        Switch { log: StreamLog::new(room), requests, tokens, posts, last: GET, request_bytes: 0 }
    }

    /// Begins a POST with these requests; its connection reads the new stream from the start.
    pub(super) fn begin(&mut self, requests: &[NewRequest]) -> Result<StreamId, CannotBegin> {
        if self.request_bytes > limits::UNANSWERED {
            return Err(CannotBegin::TooMany);
        }
        // Only a batch can name an id twice.
        let mut seen = HashSet::new();
        for request in requests {
            let twice = requests.len() > 1 && !seen.insert(&request.key);
            if twice || self.requests.contains_key(&request.key) {
                return Err(CannotBegin::Duplicate(request.key.clone()));
            }
        }
        self.last += 1;
        let stream = self.last;
        for NewRequest { key, token } in requests {
            self.request_bytes += size(key, token.as_ref());
            if let Some(token) = token {
                self.tokens.insert(token.clone(), stream);
            }
            self.requests.insert(key.clone(), RequestInFlight { stream, token: token.clone(), cancelled: false });
        }
        self.posts.push(PostInFlight { stream, owed: requests.len(), turns: TimerTurns::default() });
        self.log.open(stream);
        Ok(stream)
    }

    /// Takes back a POST that never reached the server.
    pub(super) fn take_back(&mut self, stream: StreamId) {
        let keys: Vec<_> =
            self.requests.iter().filter(|(_, asked)| asked.stream == stream).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.answered(key)));
        self.log.take(stream);
    }

    /// Answers a request in the server's place with an error if no connection waits for the answer, which is too large
    /// to keep until the client comes back. Returns false, and does nothing, in any other case.
    pub(super) fn refuse_to_keep(&mut self, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let key = envelope.key().filter(|_| envelope.kind == EnvelopeKind::Response);
        let asked = key.as_ref().and_then(|key| self.requests.get(key));
        let (Some(key), Some(asked)) = (&key, asked) else { return false };
        let refuses = !self.log.is_read(asked.stream);
        if refuses {
            self.fail(
                key,
                codes::SERVER,
                &"the answer was too large to be kept while no connection waited for it".into(),
            );
        }
        refuses
    }

    /// Delivers a line of the server. Returns the stream that it went to; `None` if it answers no request in flight, or
    /// the connection that waited for it is gone for good.
    pub(super) fn deliver(&mut self, line: Bytes, message: &Message<'_>) -> Option<StreamId> {
        match message {
            Message::One(envelope) => self.deliver_one(line, envelope),
            Message::Batch(envelopes) => self.deliver_batch(line, envelopes),
        }
    }

    fn deliver_one(&mut self, line: Bytes, envelope: &Envelope<'_>) -> Option<StreamId> {
        if envelope.kind == EnvelopeKind::Response
            && let Some(key) = envelope.key()
        {
            return self.answer(&key, line);
        }
        let stream = self.stream_of(envelope);
        self.push_other(stream, line)
    }

    /// Delivers a batch: as it is if all of it is for one stream, otherwise message by message.
    fn deliver_batch(&mut self, line: Bytes, envelopes: &[Envelope<'_>]) -> Option<StreamId> {
        let keys: Vec<_> = envelopes
            .iter()
            .filter(|envelope| envelope.kind == EnvelopeKind::Response)
            .filter_map(Envelope::key)
            .collect();
        let streams: Vec<_> = keys.iter().filter_map(|key| self.requests.get(key)).map(|asked| asked.stream).collect();
        match streams.first() {
            Some(first) if streams.len() == envelopes.len() && streams.iter().all(|stream| stream == first) => {
                let first = *first;
                let pushed = self.log.push(first, line);
                keys.iter().for_each(|key| drop(self.answered(key)));
                pushed.then_some(first)
            }
            _ => self.deliver_apart(&line),
        }
    }

    fn deliver_apart(&mut self, line: &Bytes) -> Option<StreamId> {
        let mut routed = None;
        let elements: Vec<&RawValue> = serde_json::from_slice(line).unwrap_or_default();
        for element in elements {
            let part = line.slice_ref(element.get().as_bytes());
            if let Ok(Message::One(envelope)) = Message::read(&part) {
                routed = self.deliver_one(part.clone(), &envelope);
            }
        }
        routed
    }

    /// Delivers the answer to a request.
    fn answer(&mut self, key: &IdKey, line: Bytes) -> Option<StreamId> {
        let stream = self.requests.get(key)?.stream;
        let pushed = self.log.push(stream, line);
        self.answered(key);
        pushed.then_some(stream)
    }

    /// Removes an answered request; the last one of a POST finishes its stream.
    fn answered(&mut self, key: &IdKey) -> Option<RequestInFlight> {
        // The size was counted with the id as the client wrote it, so it is subtracted with that one.
        let (key, asked) = self.requests.remove_entry(key)?;
        self.request_bytes -= size(&key, asked.token.as_ref());
        if let Some(token) = &asked.token
            && self.tokens.get(token) == Some(&asked.stream)
        {
            self.tokens.remove(token);
        }
        if let Some(at) = self.post(asked.stream) {
            self.posts[at].owed -= 1;
            if self.posts[at].owed == 0 {
                self.posts.remove(at);
                self.log.finish(asked.stream);
            }
        }
        Some(asked)
    }

    /// The stream for a message that is not an answer.
    fn stream_of(&self, envelope: &Envelope<'_>) -> StreamId {
        if envelope.kind == EnvelopeKind::Notification
            && let Some(stream) =
                envelope.progress_token().and_then(IdKey::of).and_then(|token| self.tokens.get(&token))
        {
            return *stream;
        }
        let reachable = |post: &&PostInFlight| self.log.is_reachable(post.stream);
        let mut waiting = self.posts.iter().rev().filter(reachable);
        match (waiting.next(), waiting.next()) {
            (None, _) => GET,
            (Some(only), None) => only.stream,
            _ if self.log.is_read(GET) => GET,
            (Some(last), Some(_)) => {
                let read = self.posts.iter().rev().find(|post| self.log.is_read(post.stream));
                read.unwrap_or(last).stream
            }
        }
    }

    fn push_other(&mut self, stream: StreamId, line: Bytes) -> Option<StreamId> {
        self.log.mix(stream);
        self.log.push(stream, line).then_some(stream)
    }

    /// Returns how a POST is answered; if that is not decided yet, its connection is woken on a change. With `patient`,
    /// a late answer is still sent as one body.
    pub(super) fn first(&mut self, stream: StreamId, (batch, patient): (bool, bool), waker: &Waker) -> PostAnswer {
        let late = || self.post(stream).is_some_and(|at| self.posts[at].turns.is_late());
        if self.log.is_mixed(stream) || (!patient && late()) {
            return PostAnswer::Stream;
        }
        match self.log.take(stream) {
            Some(messages) => PostAnswer::Whole(joined(messages, batch)),
            None => {
                self.log.wake_on_change(stream, waker);
                PostAnswer::Wait
            }
        }
    }

    /// Counts a firing of the window's timer for all POSTs; returns true if one of them is not late.
    pub(super) fn turn(&mut self) -> bool {
        for post in &mut self.posts {
            if post.turns.next() {
                self.log.wake(post.stream);
            }
        }
        self.posts.iter().any(|post| !post.turns.is_late())
    }

    /// The index of a POST in flight.
    fn post(&self, stream: StreamId) -> Option<usize> {
        self.posts.binary_search_by_key(&stream, |post| post.stream).ok()
    }

    /// Notes that a connection is gone.
    pub(super) fn leave(&mut self, stream: StreamId, reader: u32) {
        let orphans = self.log.leave(stream, reader);
        self.adopt(orphans);
    }

    /// Cuts the connections that do not read.
    pub(super) fn cut_stalled(&mut self) {
        let orphans = self.log.cut_stalled();
        self.adopt(orphans);
    }

    /// Delivers messages of a lost connection to another stream if they are not tied to a request. They may now arrive
    /// after messages that the server sent later.
    fn adopt(&mut self, orphans: impl IntoIterator<Item = Bytes>) {
        for line in orphans {
            match Message::read(&line) {
                Ok(Message::One(envelope)) if envelope.kind != EnvelopeKind::Response => {
                    self.deliver_one(line.clone(), &envelope);
                }
                // An answer belongs to the lost connection alone.
                _ => {}
            }
        }
    }

    /// Notes that a request in flight was cancelled; returns its stream the first time.
    pub(super) fn cancel(&mut self, key: &IdKey) -> Option<StreamId> {
        let asked = self.requests.get_mut(key)?;
        (!std::mem::replace(&mut asked.cancelled, true)).then_some(asked.stream)
    }

    /// Answers a cancelled request in the server's place, if it is still in flight. The stream is compared because
    /// another request may use the id by now.
    pub(super) fn give_up(&mut self, key: &IdKey, stream: StreamId) {
        if self.requests.get(key).is_some_and(|asked| asked.stream == stream) {
            self.fail(key, codes::SERVER, &"the request was cancelled".into());
        }
    }

    /// Requests that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Answers all requests in flight except `except` in the server's place; returns their ids.
    pub(super) fn abort(&mut self, except: Option<&IdKey>) -> Vec<IdKey> {
        let keys: Vec<_> = self.requests.keys().filter(|key| Some(*key) != except).cloned().collect();
        keys.iter().for_each(|key| self.fail(key, codes::SERVER, &"aborted".into()));
        keys
    }

    /// Answers a request in the server's place, if it is still in flight, with the id as its client wrote it.
    fn fail(&mut self, key: &IdKey, code: i64, error: &UnansweredError) {
        let asked = self.requests.get_key_value(key).map_or(key, |(asked, _)| asked);
        let id = RawValue::from_string(asked.as_str().to_owned()).ok();
        self.answer(key, error_body(id.as_deref(), code, &error.message, error.data.clone()).into());
    }

    /// Answers all requests in flight in the server's place, and ends all streams.
    pub(super) fn close(&mut self, error: &UnansweredError) {
        let keys: Vec<_> = self.requests.keys().cloned().collect();
        keys.iter().for_each(|key| self.fail(key, codes::SERVER, error));
        self.log.finish_all();
    }
}

/// The approximate memory of a request in flight.
fn size(key: &IdKey, token: Option<&IdKey>) -> usize {
    RECORD + key.as_str().len() + token.map_or(0, |token| token.as_str().len())
}

/// The answers to a POST as one body.
fn joined(mut messages: VecDeque<Bytes>, batch: bool) -> Bytes {
    match messages.pop_front() {
        // The server answered in the form of the request: one message, or a batch as an array.
        Some(only) if messages.is_empty() && (!batch || only.trim_ascii_start().starts_with(b"[")) => only,
        first => {
            let parts: Vec<_> = first.into_iter().chain(messages).collect();
            [b"[".as_slice(), &parts.join(&b","[..]), b"]"].concat().into()
        }
    }
}

#[cfg(test)]
mod tests;
