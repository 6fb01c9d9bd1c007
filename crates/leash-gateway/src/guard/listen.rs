//! Streams for the server's own messages. leash adds comments while the server is silent, and pings that show if the
//! client is still there.

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
use crate::keep_alive::{self, Due, Known};
use crate::metrics::Counters;
use crate::state::session::Session;
use leash_model::limits;
use leash_model::receipt::Reason;
use leash_protocol::envelope::{Envelope, EnvelopeKind};
use leash_protocol::sse;
use leash_upstream::body::BodyError;

/// The prefix of the ids of leash's own pings, as JSON. No client and no server sends requests with such an id.
const PING: &str = "\"leash-ping-";

/// True if an envelope answers one of leash's own pings.
pub(super) fn is_answer_to_ping(envelope: &Envelope<'_>) -> bool {
    envelope.kind == EnvelopeKind::Response && envelope.id.is_some_and(|id| id.get().starts_with(PING))
}

/// The state of a session's pings.
#[derive(Debug, Default)]
pub(super) struct Pings {
    sent: Cell<u64>,
    /// Pings in a row that the client has not answered.
    unanswered: Cell<u32>,
    /// The client has answered a ping before.
    answers: Cell<bool>,
    /// One of the session's streams sends the pings.
    taken: Cell<bool>,
}

impl Pings {
    /// Records that the client sent something.
    pub(super) fn heard(&self) {
        self.unanswered.set(0);
    }

    /// Records that the client answered a ping.
    pub(super) fn answered(&self) {
        self.heard();
        self.answers.set(true);
    }

    /// The facts about the client that `keep_alive` needs.
    fn known(&self, owned: bool) -> Known {
        Known { unanswered: self.unanswered.get(), answers: self.answers.get(), owned }
    }

    /// Returns the next ping as an event and counts it.
    fn next(&self, session: &Session) -> Bytes {
        self.unanswered.set(self.unanswered.get() + 1);
        self.sent.set(self.sent.get() + 1);
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{PING}{}-{}","method":"ping"}}"#, session.id, self.sent.get());
        let mut event = Vec::new();
        // Without an event id, because a client cannot resume from a ping.
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
    /// The time of the last byte sent.
    active: Instant,
    quiet: Pin<Box<Sleep>>,
    pinging: Option<Pinging>,
}

/// The timer of the one stream that sends the session's pings.
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

    /// Takes note of bytes that were sent before the stream.
    pub(super) fn after(mut self, bytes: &[u8]) -> Listening<B> {
        self.boundary.pass(bytes);
        self
    }

    /// Returns a ping or a comment of leash's own when one is due and no event is incomplete.
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
            // The timer is only reset when it fires, so that an event does not touch it.
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
    /// Claims the pings for this stream. `None` if the policy has no pings or another stream of the session sends them.
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

    /// Returns the next ping. `Ready(None)` closes the stream because the client is silent.
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
