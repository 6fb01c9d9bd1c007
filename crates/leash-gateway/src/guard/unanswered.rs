//! Requests of an HTTP+SSE session that the server has not answered. The responses come on the session's stream, so
//! leash reads that stream to find them. It does so only for sessions of the control API, whose callers can abort
//! requests.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::{collections::HashMap, rc::Rc};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::state::server::Server;
use leash_model::limits;
use leash_protocol::envelope::{EnvelopeKind, IdKey, Message, codes, error_body};
use leash_protocol::sse::{self, Splitter};

/// The unanswered requests of one session.
pub(super) struct Unanswered {
    /// Counts the unanswered requests in `calls`.
    server: Rc<Server>,
    ids: RefCell<HashMap<IdKey, Box<RawValue>>>,
    /// The total length of the ids, in bytes.
    bytes: Cell<usize>,
    /// Error responses for aborted requests, as events for the client.
    aborted: RefCell<Vec<u8>>,
    /// Wakes the stream while it waits.
    stream: Cell<Option<Waker>>,
}

impl Unanswered {
    /// Creates the record for a session of `server`. `None` if no caller can abort its requests.
    pub(super) fn of(server: &Rc<Server>) -> Option<Unanswered> {
        server.job.as_ref()?;
        Some(Unanswered {
            server: Rc::clone(server),
            ids: RefCell::default(),
            bytes: Cell::default(),
            aborted: RefCell::default(),
            stream: Cell::default(),
        })
    }

    /// Records the requests that a client sends. `initialize` is left out: the protocol says that it cannot be
    /// cancelled.
    pub(super) fn sent(&self, body: &[u8]) {
        let Ok(message) = Message::read(body) else { return };
        for envelope in message.envelopes() {
            let is_call = envelope.kind == EnvelopeKind::Request && envelope.method.as_deref() != Some("initialize");
            let (Some(key), Some(id)) = (envelope.key(), envelope.id.filter(|_| is_call)) else { continue };
            let bytes = self.bytes.get() + id.get().len();
            // Bounds the memory for a client whose requests are never answered. Requests beyond the limit cannot be
            // aborted.
            if bytes <= limits::UNANSWERED && self.ids.borrow_mut().insert(key, id.to_owned()).is_none() {
                self.bytes.set(bytes);
                self.server.calls.update(|calls| calls + 1);
            }
        }
    }

    /// Forgets the requests that this message of the server answers.
    fn answered(&self, message: &[u8]) {
        let Ok(message) = Message::read(message) else { return };
        for envelope in message.envelopes().iter().filter(|envelope| envelope.kind == EnvelopeKind::Response) {
            if let Some(key) = envelope.key() {
                self.forget(&key);
            }
        }
    }

    fn forget(&self, key: &IdKey) {
        if let Some(id) = self.ids.borrow_mut().remove(key) {
            self.bytes.update(|bytes| bytes - id.get().len());
            self.server.calls.update(|calls| calls - 1);
        }
    }

    /// Forgets the requests of a message that did not reach the server.
    pub(super) fn not_sent(&self, body: &[u8]) {
        let Ok(message) = Message::read(body) else { return };
        message.envelopes().iter().filter_map(|envelope| envelope.key()).for_each(|key| self.forget(&key));
    }

    /// Answers all requests with an error in the server's place. Returns their ids.
    pub(super) fn abort(&self) -> Vec<Box<RawValue>> {
        let ids: Vec<_> = self.ids.take().into_values().collect();
        self.bytes.set(0);
        self.server.calls.update(|calls| calls - ids.len());
        let mut events = self.aborted.borrow_mut();
        for id in &ids {
            let error = error_body(Some(id), codes::SERVER, "aborted", None);
            sse::encode(&mut events, None, Some("message"), &error);
        }
        if let Some(stream) = self.stream.take() {
            stream.wake();
        }
        ids
    }

    /// Takes the events that the stream sends in the server's place. If there are none, `abort` wakes the stream later.
    pub(super) fn take_events(&self, cx: &Context<'_>) -> Option<Bytes> {
        let events = self.aborted.take();
        if events.is_empty() {
            self.stream.set(Some(cx.waker().clone()));
            return None;
        }
        Some(events.into())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.server.calls.update(|calls| calls - self.ids.get_mut().len());
    }
}

/// Looks for responses in a stream as it passes.
pub(super) struct ResponseFinder(Splitter);

impl Default for ResponseFinder {
    fn default() -> ResponseFinder {
        ResponseFinder(Splitter::new(limits::LINE))
    }
}

impl ResponseFinder {
    pub(super) fn pass(&mut self, bytes: &[u8], unanswered: &Unanswered) {
        self.0.push(bytes);
        while let Some(event) = self.0.next_event() {
            if let Some(data) = event.ok().and_then(|event| event.data()) {
                unanswered.answered(&data);
            }
        }
    }
}
