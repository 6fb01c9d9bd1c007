//! The event streams of jobs. A client that does not read is cut off, and its last event says so.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::{collections::VecDeque, pin::Pin};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::reply::Reply;
use super::view::{EventView, SessionView};
use crate::respond::{self, Answer};
use leash_model::{clock, limits, receipt::Receipt};
use leash_protocol::sse;
use leash_upstream::body::{Body, BodyError};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Started,
    OwnerLost,
    Ending,
    Ended,
}

impl EventKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::OwnerLost => "owner-lost",
            EventKind::Ending => "ending",
            EventKind::Ended => "ended",
        }
    }
}

/// All event streams.
#[derive(Default)]
pub(super) struct EventStreams {
    readers: RefCell<Vec<Weak<EventReader>>>,
    /// True once no more events will come.
    closed: Cell<bool>,
}

/// One event stream with its unread events.
struct EventReader {
    /// The job that it is limited to, if any.
    only: Option<Rc<str>>,
    queue: RefCell<VecDeque<Bytes>>,
    waker: RefCell<Option<Waker>>,
    /// True if the stream ends after the events in the queue.
    last: Cell<bool>,
}

impl EventReader {
    fn push(&self, event: Bytes) {
        if self.last.get() {
            return;
        }
        let mut queue = self.queue.borrow_mut();
        if queue.len() < limits::EVENT_QUEUE {
            queue.push_back(event);
        } else {
            queue.push_back(lost());
            self.last.set(true);
        }
        drop(queue);
        self.wake();
    }

    fn finish(&self) {
        self.last.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// The data of an event: the session in the first event of a stream that owns it, else what happened.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum EventData<'a> {
    Session(&'a SessionView),
    Event(&'a EventView),
}

/// The last event of a reader that was too slow.
fn lost() -> Bytes {
    let why = Some("the client did not read the events fast enough; list the sessions, and listen again".to_owned());
    encode("lost", &EventData::Event(&EventView { session: None, at_ms: clock::unix_ms(), why, receipt: None }))
}

fn encode(name: &str, event: &EventData<'_>) -> Bytes {
    let mut bytes = Vec::new();
    // All events consist of text, numbers and lists, so this cannot fail.
    sse::encode(&mut bytes, None, Some(name), &serde_json::to_vec(event).unwrap_or_default());
    bytes.into()
}

impl EventStreams {
    /// Sends an event to all streams that want it.
    pub(super) fn tell(&self, job: &str, what: EventKind, why: Option<String>, receipt: Option<&Receipt>) {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| reader.strong_count() > 0);
        if readers.is_empty() {
            return;
        }
        let view = EventView { session: Some(job.to_owned()), at_ms: clock::unix_ms(), why, receipt: receipt.cloned() };
        let event = encode(what.name(), &EventData::Event(&view));
        for reader in readers.iter().filter_map(Weak::upgrade) {
            if reader.only.as_deref().is_none_or(|only| only == job) {
                reader.push(event.clone());
                // A job that is over has no more events.
                if what == EventKind::Ended && reader.only.is_some() {
                    reader.finish();
                }
            }
        }
    }

    /// Lets every stream send its queued events and then end.
    pub(super) fn close(&self) {
        self.closed.set(true);
        let readers = self.readers.take();
        readers.iter().filter_map(Weak::upgrade).for_each(|reader| reader.finish());
    }

    /// A stream of the events from now on, of one job or of all.
    pub(super) fn listen(&self, only: Option<Rc<str>>) -> EventBody {
        let reader = Rc::new(EventReader {
            only,
            queue: RefCell::default(),
            waker: RefCell::default(),
            last: Cell::new(self.closed.get()),
        });
        self.readers.borrow_mut().push(Rc::downgrade(&reader));
        let mut quiet = interval_at(Instant::now() + limits::SSE_KEEP_ALIVE, limits::SSE_KEEP_ALIVE);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A comment at once, so that the client knows that it is listening.
        EventBody { reader, first: Some(Bytes::from_static(b": listening\n\n")), quiet, _kept: None }
    }

    #[cfg(test)]
    pub(super) fn readers(&self) -> usize {
        self.readers.borrow().iter().filter(|reader| reader.strong_count() > 0).count()
    }
}

/// An event stream as the body of a response.
pub(super) struct EventBody {
    reader: Rc<EventReader>,
    first: Option<Bytes>,
    quiet: Interval,
    /// A value that is dropped with the connection.
    _kept: Option<Box<dyn std::any::Any>>,
}

impl EventBody {
    /// Lets the stream begin with the session.
    pub(super) fn beginning(self, session: &SessionView) -> EventBody {
        EventBody { first: Some(encode("session", &EventData::Session(session))), ..self }
    }

    /// Keeps a value that is dropped when the connection is closed.
    pub(super) fn keeping(self, kept: impl std::any::Any) -> EventBody {
        EventBody { _kept: Some(Box::new(kept)), ..self }
    }

    /// The stream as a response.
    pub(super) fn answer<T>(self, reply: &Reply<T>) -> Answer {
        let mut answer = respond::empty(reply.status);
        *answer.body_mut() = Body::stream(self);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        answer
    }
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let next = this.first.take().or_else(|| this.reader.queue.borrow_mut().pop_front());
        if let Some(event) = next {
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        if this.reader.last.get() {
            return Poll::Ready(None);
        }
        *this.reader.waker.borrow_mut() = Some(cx.waker().clone());
        ready!(this.quiet.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(sse::KEEP_ALIVE)))))
    }
}
