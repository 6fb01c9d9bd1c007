//! Requests of an HTTP+SSE session that were not answered. Their answers come on the session's stream, so they are known only by being
//! looked for there; that is done for sessions of the control API, which can be told to abort.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::server::Server;
use leash_model::limits;
use leash_protocol::envelope::{IdKey, Kind, Message, codes, error_body};
use leash_protocol::sse;
use leash_protocol::sse::Splitter;

/// The requests of one session.
pub(super) struct Unanswered {
    /// Counts them.
    server: Rc<Server>,
    ids: RefCell<HashMap<IdKey, Box<RawValue>>>,
    /// Bytes of the ids.
    bytes: Cell<usize>,
    /// Events for the client in the place of answers.
    aborted: RefCell<Vec<u8>>,
    /// The stream, while it waits.
    stream: Cell<Option<Waker>>,
}

impl Unanswered {
    /// For the sessions of a server; `None` where nothing can be aborted.
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

    /// A client sends this. `initialize` is not among them: it can't be cancelled, says the protocol.
    pub(super) fn asked(&self, body: &[u8]) {
        let Ok(message) = Message::read(body) else { return };
        for envelope in message.envelopes() {
            let is_call = envelope.kind == Kind::Request && envelope.method.as_deref() != Some("initialize");
            let (Some(key), Some(id)) = (envelope.key(), envelope.id.filter(|_| is_call)) else { continue };
            let bytes = self.bytes.get() + id.get().len();
            // A client that is never answered is not remembered without end; beyond that it can only end its session.
            if bytes <= limits::UNANSWERED && self.ids.borrow_mut().insert(key, id.to_owned()).is_none() {
                self.bytes.set(bytes);
                self.server.calls.update(|calls| calls + 1);
            }
        }
    }

    /// The server says this.
    fn heard(&self, message: &[u8]) {
        let Ok(message) = Message::read(message) else { return };
        for envelope in message.envelopes().iter().filter(|envelope| envelope.kind == Kind::Response) {
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

    /// A request did not reach the server.
    pub(super) fn not_asked(&self, body: &[u8]) {
        let Ok(message) = Message::read(body) else { return };
        message.envelopes().iter().filter_map(|envelope| envelope.key()).for_each(|key| self.forget(&key));
    }

    /// Answers all of them in the server's place; their ids.
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

    /// What the stream has to say in the server's place; it is woken when there is something.
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

/// Looks for answers in a stream as it passes.
pub(super) struct Ear(Splitter);

impl Default for Ear {
    fn default() -> Ear {
        Ear(Splitter::new(limits::LINE))
    }
}

impl Ear {
    pub(super) fn pass(&mut self, bytes: &[u8], unanswered: &Unanswered) {
        self.0.push(bytes);
        while let Some(event) = self.0.next_event() {
            if let Some(data) = event.ok().and_then(|event| event.data()) {
                unanswered.heard(&data);
            }
        }
    }
}
