//! Which stream a server's message goes to; pure.
//!
//! A response goes to the POST that asked; progress to the POST whose token it names. Everything else has no address on the
//! pipe, and exactly one stream gets it, the first of these that there is:
//!
//! 1. the only POST in flight, so that the message keeps its place before the result;
//! 2. the GET stream, if somebody reads it;
//! 3. the POST in flight that began last, one that is read before one that may be resumed;
//! 4. the GET stream, where it waits for somebody to come.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::log::{GET, Log, StreamId};
use super::window::Turns;
use leash_model::limits;
use leash_protocol::envelope::{Envelope, IdKey, Kind, Message, codes, error_body};

/// What is in flight in a session, and the streams that it is answered on.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) log: Log,
    /// Requests that were not answered yet.
    requests: HashMap<IdKey, Asked>,
    /// The streams of progress tokens.
    tokens: HashMap<IdKey, StreamId>,
    /// Streams of POSTs that are owed answers, in the order in which they began.
    posts: Vec<Post>,
    last: StreamId,
    /// Bytes that the requests in flight take, about.
    flying: usize,
}

/// What a request in flight takes besides its id and its token.
const RECORD: usize = 128;

/// A request in flight.
#[derive(Debug)]
struct Asked {
    stream: StreamId,
    token: Option<IdKey>,
    cancelled: bool,
}

/// A POST in flight.
#[derive(Debug)]
struct Post {
    stream: StreamId,
    /// Answers that it is owed.
    owed: usize,
    turns: Turns,
}

/// A request that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) key: IdKey,
    pub(super) token: Option<IdKey>,
}

impl Request {
    /// The request in an envelope; `None` if it is something else.
    pub(super) fn of(envelope: &Envelope<'_>) -> Option<Request> {
        if envelope.kind != Kind::Request {
            return None;
        }
        let token = envelope.progress_token().and_then(IdKey::of);
        Some(Request { key: envelope.key()?, token })
    }
}

/// Why a request can't begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Its id is in flight already.
    Duplicate(IdKey),
    /// Too much is.
    TooMany,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// It went to this stream.
    To(StreamId),
    /// It answers nothing that was asked, or something that nobody waits for any more.
    Nowhere,
}

/// How a POST is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// It is not known yet.
    Wait,
    /// By one body.
    Whole(Bytes),
    /// By a stream: there is more than answers.
    Stream,
}

impl Switch {
    pub(super) fn new(room: usize) -> Switch {
        let (requests, tokens, posts) = (HashMap::new(), HashMap::new(), Vec::new());
        Switch { log: Log::new(room), requests, tokens, posts, last: GET, flying: 0 }
    }

    /// A POST with these requests begins; its connection reads from the start.
    pub(super) fn begin(&mut self, requests: &[Request]) -> Result<StreamId, NotNow> {
        if self.flying > limits::UNANSWERED {
            return Err(NotNow::TooMany);
        }
        // Only a batch can name an id twice.
        let mut seen = HashSet::new();
        for request in requests {
            let twice = requests.len() > 1 && !seen.insert(&request.key);
            if twice || self.requests.contains_key(&request.key) {
                return Err(NotNow::Duplicate(request.key.clone()));
            }
        }
        self.last += 1;
        let stream = self.last;
        for Request { key, token } in requests {
            self.flying += size(key, token.as_ref());
            if let Some(token) = token {
                self.tokens.insert(token.clone(), stream);
            }
            self.requests.insert(key.clone(), Asked { stream, token: token.clone(), cancelled: false });
        }
        self.posts.push(Post { stream, owed: requests.len(), turns: Turns::default() });
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

    /// Answers a request in the server's place with an error, where no connection waits for the answer, which is too large to be kept
    /// until one comes back. `false` if that is not so.
    pub(super) fn refuse_to_keep(&mut self, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let key = envelope.key().filter(|_| envelope.kind == Kind::Response);
        let asked = key.as_ref().and_then(|key| self.requests.get(key));
        let (Some(key), Some(asked)) = (&key, asked) else { return false };
        let refuses = !self.log.is_read(asked.stream);
        if refuses {
            self.fail(key, codes::SERVER, "the answer was too large to be kept while no connection waited for it");
        }
        refuses
    }

    /// Delivers a line of the server.
    pub(super) fn deliver(&mut self, line: Bytes, message: &Message<'_>) -> Routed {
        match message {
            Message::One(envelope) => self.deliver_one(line, envelope),
            Message::Batch(envelopes) => self.deliver_batch(line, envelopes),
        }
    }

    fn deliver_one(&mut self, line: Bytes, envelope: &Envelope<'_>) -> Routed {
        if envelope.kind == Kind::Response
            && let Some(key) = envelope.key()
        {
            return self.answer(&key, line);
        }
        let stream = self.stream_of(envelope);
        self.push_other(stream, line)
    }

    /// A batch for one stream goes there as it is; one for several is taken apart.
    fn deliver_batch(&mut self, line: Bytes, envelopes: &[Envelope<'_>]) -> Routed {
        let keys: Vec<_> =
            envelopes.iter().filter(|envelope| envelope.kind == Kind::Response).filter_map(Envelope::key).collect();
        let streams: Vec<_> = keys.iter().filter_map(|key| self.requests.get(key)).map(|asked| asked.stream).collect();
        match streams.first() {
            Some(first) if streams.len() == envelopes.len() && streams.iter().all(|stream| stream == first) => {
                let first = *first;
                let pushed = self.log.push(first, line);
                keys.iter().for_each(|key| drop(self.answered(key)));
                if pushed { Routed::To(first) } else { Routed::Nowhere }
            }
            _ => self.deliver_apart(&line),
        }
    }

    fn deliver_apart(&mut self, line: &Bytes) -> Routed {
        let mut routed = Routed::Nowhere;
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
    fn answer(&mut self, key: &IdKey, line: Bytes) -> Routed {
        let Some(stream) = self.requests.get(key).map(|asked| asked.stream) else { return Routed::Nowhere };
        let pushed = self.log.push(stream, line);
        self.answered(key);
        if pushed { Routed::To(stream) } else { Routed::Nowhere }
    }

    /// A request is over; with the last one, its stream is.
    fn answered(&mut self, key: &IdKey) -> Option<Asked> {
        // Its size is that of the id as the client wrote it.
        let (key, asked) = self.requests.remove_entry(key)?;
        self.flying -= size(&key, asked.token.as_ref());
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

    /// The stream for what is not an answer.
    fn stream_of(&self, envelope: &Envelope<'_>) -> StreamId {
        if envelope.kind == Kind::Notification
            && let Some(stream) =
                envelope.progress_token().and_then(IdKey::of).and_then(|token| self.tokens.get(&token))
        {
            return *stream;
        }
        let reachable = |post: &&Post| self.log.is_reachable(post.stream);
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

    fn push_other(&mut self, stream: StreamId, line: Bytes) -> Routed {
        self.log.mix(stream);
        if self.log.push(stream, line) { Routed::To(stream) } else { Routed::Nowhere }
    }

    /// How a POST is answered, as far as that is known; its connection is woken when more is. `patient`: it is never too late
    /// for one body.
    pub(super) fn first(&mut self, stream: StreamId, (batch, patient): (bool, bool), waker: &Waker) -> First {
        let late = || self.post(stream).is_some_and(|at| self.posts[at].turns.is_late());
        if self.log.is_mixed(stream) || (!patient && late()) {
            return First::Stream;
        }
        match self.log.take(stream) {
            Some(messages) => First::Whole(joined(messages, batch)),
            None => {
                self.log.wake_on_change(stream, waker);
                First::Wait
            }
        }
    }

    /// The timer of the window fires; whether something is still in time.
    pub(super) fn turn(&mut self) -> bool {
        for post in &mut self.posts {
            if post.turns.next() {
                self.log.wake(post.stream);
            }
        }
        self.posts.iter().any(|post| !post.turns.is_late())
    }

    /// Where a POST in flight is.
    fn post(&self, stream: StreamId) -> Option<usize> {
        self.posts.binary_search_by_key(&stream, |post| post.stream).ok()
    }

    /// A connection is gone.
    pub(super) fn leave(&mut self, stream: StreamId, reader: u32) {
        let orphans = self.log.leave(stream, reader);
        self.adopt(orphans);
    }

    /// Connections that do not read are cut.
    pub(super) fn cut_stalled(&mut self) {
        let orphans = self.log.cut_stalled();
        self.adopt(orphans);
    }

    /// What was meant for anybody finds somebody else, though it may now come after what was said later.
    fn adopt(&mut self, orphans: impl IntoIterator<Item = Bytes>) {
        for line in orphans {
            match Message::read(&line) {
                Ok(Message::One(envelope)) if envelope.kind != Kind::Response => {
                    self.deliver_one(line.clone(), &envelope);
                }
                // An answer is for one client alone.
                _ => {}
            }
        }
    }

    /// Notes that a request in flight was cancelled; its stream, once.
    pub(super) fn cancel(&mut self, key: &IdKey) -> Option<StreamId> {
        let asked = self.requests.get_mut(key)?;
        (!std::mem::replace(&mut asked.cancelled, true)).then_some(asked.stream)
    }

    /// Answers a request that was cancelled in the server's place, if it is still in flight: its id may be another's by now.
    pub(super) fn give_up(&mut self, key: &IdKey, stream: StreamId) {
        if self.requests.get(key).is_some_and(|asked| asked.stream == stream) {
            self.fail(key, codes::SERVER, "the request was cancelled");
        }
    }

    /// Requests that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Answers everything but one in the server's place; what that was.
    pub(super) fn abort(&mut self, except: Option<&IdKey>) -> Vec<IdKey> {
        let keys: Vec<_> = self.requests.keys().filter(|key| Some(*key) != except).cloned().collect();
        keys.iter().for_each(|key| self.fail(key, codes::SERVER, "aborted"));
        keys
    }

    /// Answers a request in the server's place, if it is still in flight, with the id as its client wrote it.
    fn fail(&mut self, key: &IdKey, code: i64, message: &str) {
        let asked = self.requests.get_key_value(key).map_or(key, |(asked, _)| asked);
        let id = RawValue::from_string(asked.as_str().to_owned()).ok();
        self.answer(key, error_body(id.as_deref(), code, message, None).into());
    }

    /// Answers everything in the server's place, and ends all streams.
    pub(super) fn close(&mut self, message: &str) {
        let keys: Vec<_> = self.requests.keys().cloned().collect();
        keys.iter().for_each(|key| self.fail(key, codes::SERVER, message));
        self.log.finish_all();
    }
}

/// What a request in flight takes, about.
fn size(key: &IdKey, token: Option<&IdKey>) -> usize {
    RECORD + key.as_str().len() + token.map_or(0, |token| token.as_str().len())
}

/// The answers to a POST as one body.
fn joined(mut messages: VecDeque<Bytes>, batch: bool) -> Bytes {
    match messages.pop_front() {
        // The server answered as it was asked.
        Some(only) if messages.is_empty() && (!batch || only.trim_ascii_start().starts_with(b"[")) => only,
        first => {
            let parts: Vec<_> = first.into_iter().chain(messages).collect();
            [b"[".as_slice(), &parts.join(&b","[..]), b"]"].concat().into()
        }
    }
}

#[cfg(test)]
mod tests;
