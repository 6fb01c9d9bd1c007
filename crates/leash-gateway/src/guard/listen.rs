//! Streams for the server's own messages: comments while it is silent, and pings that show whether the client is there.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use tokio::time::{Instant, Sleep, sleep_until};

use super::holding;
use super::stream::{Boundary, Cut, Until, passed};
use crate::keep_alive;
use crate::keep_alive::{Due, Known};
use crate::metrics::Counters;
use crate::session::Session;
use leash_model::limits;
use leash_model::receipt::Reason;
use leash_protocol::envelope::{Envelope, Kind};
use leash_protocol::sse;
use leash_upstream::body::BodyError;

/// What the ids of leash's own pings begin with, as JSON. No client sends requests with such an id, and no server either.
const PING: &str = "\"leash-ping-";

/// Whether an envelope answers a ping of leash's own.
pub(super) fn is_answer_to_ping(envelope: &Envelope<'_>) -> bool {
    envelope.kind == Kind::Response && envelope.id.is_some_and(|id| id.get().starts_with(PING))
}

/// Pings of a session.
#[derive(Debug, Default)]
pub(super) struct Pings {
    sent: Cell<u64>,
    /// In a row, up to now.
    unanswered: Cell<u32>,
    /// The client has answered one.
    answers: Cell<bool>,
    /// One of the session's streams sends them.
    taken: Cell<bool>,
}

impl Pings {
    /// The client is there.
    pub(super) fn heard(&self) {
        self.unanswered.set(0);
    }

    /// The client has answered a ping.
    pub(super) fn answered(&self) {
        self.heard();
        self.answers.set(true);
    }

    /// What is known of the client by its answers.
    fn known(&self, owned: bool) -> Known {
        Known { unanswered: self.unanswered.get(), answers: self.answers.get(), owned }
    }

    /// The next ping.
    fn next(&self, session: &Session) -> Bytes {
        self.unanswered.set(self.unanswered.get() + 1);
        self.sent.set(self.sent.get() + 1);
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{PING}{}-{}","method":"ping"}}"#, session.id, self.sent.get());
        let mut event = Vec::new();
        // Without an id: it is no event that a client could resume from.
        sse::encode(&mut event, None, None, ping.as_bytes());
        event.into()
    }
}

/// A stream that a client listens to.
pub(super) struct Listening<B = Incoming> {
    body: B,
    counters: Rc<Counters>,
    cut: Cut,
    boundary: Boundary,
    /// When something was sent last.
    active: Instant,
    quiet: Pin<Box<Sleep>>,
    pinging: Option<Pinging>,
}

/// The stream's part in asking whether the client is there.
struct Pinging {
    session: Rc<Session>,
    every: Duration,
    due: Pin<Box<Sleep>>,
}

impl<B> Listening<B> {
    pub(super) fn new(body: B, counters: Rc<Counters>, until: Until) -> Listening<B> {
        let now = Instant::now();
        let pinging = match &until {
            Until::Session(flight) => Pinging::claim(&flight.session),
            Until::End | Until::Stopping(_) => None,
        };
        let quiet = Box::pin(sleep_until(now + limits::STREAM_QUIET));
        Listening { body, counters, cut: Cut::new(until), boundary: Boundary::default(), active: now, quiet, pinging }
    }

    /// These bytes were sent before the stream.
    pub(super) fn after(mut self, bytes: &[u8]) -> Listening<B> {
        self.boundary.pass(bytes);
        self
    }

    /// What leash itself has to write, if its time has come and no event is under way.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(pinging) = &mut self.pinging
            && let Poll::Ready(ping) = pinging.poll(cx, &self.boundary)
        {
            return Poll::Ready(ping);
        }
        while self.quiet.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let since = now.saturating_duration_since(self.active);
            let silent = since >= limits::STREAM_QUIET;
            // The time is looked at when it is over, so that an event costs no timer.
            let next = if silent { now } else { self.active } + limits::STREAM_QUIET;
            self.quiet.as_mut().reset(next);
            if silent && self.boundary.reached() {
                return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
            }
        }
        Poll::Pending
    }
}

impl Pinging {
    /// One stream of a session asks, if anybody is to ask.
    fn claim(session: &Rc<Session>) -> Option<Pinging> {
        let policy = &session.server.settings().policy;
        let every = policy.keep_alive.pause()?;
        let upstream = holding::of(session)?;
        if upstream.pings.taken.replace(true) {
            return None;
        }
        upstream.pings.heard();
        let due = Box::pin(sleep_until(Instant::now() + every));
        Some(Pinging { session: Rc::clone(session), every, due })
    }

    /// The next ping; `Ready(None)` when the stream is to be closed because the client is silent.
    fn poll(&mut self, cx: &mut Context<'_>, boundary: &Boundary) -> Poll<Option<Bytes>> {
        while self.due.as_mut().poll(cx).is_ready() {
            self.due.as_mut().reset(Instant::now() + self.every);
            let Some(upstream) = holding::of(&self.session).filter(|_| boundary.reached()) else { continue };
            let policy = &self.session.server.settings().policy;
            let known = upstream.pings.known(self.session.is_owned());
            match keep_alive::due(policy.keep_alive, policy.keep_alive_failures, known) {
                Due::Ask => return Poll::Ready(Some(upstream.pings.next(&self.session))),
                Due::Nothing => {}
                Due::CloseStream => return Poll::Ready(None),
                Due::EndSession => {
                    self.session.end(Reason::ClientSilent);
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Pinging {
    fn drop(&mut self) {
        if let Some(upstream) = holding::of(&self.session) {
            upstream.pings.taken.set(false);
        }
    }
}

impl<B> HttpBody for Listening<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            let frame = frame.map(|frame| passed(frame, &this.counters));
            if let Some(Ok(frame)) = &frame
                && let Some(bytes) = frame.data_ref()
            {
                this.boundary.pass(bytes);
                this.active = Instant::now();
            }
            return Poll::Ready(frame);
        }
        if this.cut.poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        this.poll_own(cx).map(|own| {
            this.active = Instant::now();
            own.map(|bytes| Ok(Frame::data(bytes)))
        })
    }
}
