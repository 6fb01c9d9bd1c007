//! Streams for the server's own messages. leash adds comments while the server is silent, and pings that show if the
//! client is still there.

use std::task::{Context, Poll};
use std::{future::Future, pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use tokio::time::{Instant, Sleep, sleep_until};

use super::holding;
use super::stream::{Boundary, CutOff, ResponseLimit, poll_passed};
use crate::{keep_alive::PingAction, metrics::Counters, state::session::ClientSession};
use leash_model::{limits, receipt::Reason};
use leash_protocol::sse;
use leash_upstream::body::BodyError;

/// A stream that a client listens to.
pub(super) struct ListenBody<B = Incoming> {
    body: B,
    counters: Rc<Counters>,
    cut: CutOff,
    boundary: Boundary,
    /// The time of the last byte sent.
    active: Instant,
    quiet: Pin<Box<Sleep>>,
    pinging: Option<PingTimer>,
}

/// The timer of the one stream that sends the session's pings.
struct PingTimer {
    session: Rc<ClientSession>,
    every: Duration,
    due: Pin<Box<Sleep>>,
}

impl<B> ListenBody<B> {
    pub(super) fn new(body: B, counters: Rc<Counters>, until: ResponseLimit) -> ListenBody<B> {
        let now = Instant::now();
        let pinging = match &until {
            ResponseLimit::Session(flight) => PingTimer::claim(&flight.session),
            ResponseLimit::End | ResponseLimit::Stopping(_) => None,
        };
        let quiet = Box::pin(sleep_until(now + limits::STREAM_QUIET));
        let (cut, boundary) = (CutOff::new(until), Boundary::default());
        ListenBody { body, counters, cut, boundary, active: now, quiet, pinging }
    }

    /// Takes note of bytes that were sent before the stream.
    pub(super) fn after(mut self, bytes: &[u8]) -> ListenBody<B> {
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

impl PingTimer {
    /// Claims the pings for this stream. `None` if the policy has no pings or another stream of the session sends them.
    fn claim(session: &Rc<ClientSession>) -> Option<PingTimer> {
        let policy = &session.server.settings().policy;
        let every = policy.keep_alive.pause()?;
        let upstream = holding::of(session)?;
        if upstream.pings.has_timer.replace(true) {
            return None;
        }
        upstream.pings.client_is_alive();
        let due = Box::pin(sleep_until(Instant::now() + every));
        Some(PingTimer { session: Rc::clone(session), every, due })
    }

    /// Returns the next ping. `Ready(None)` closes the stream because the client is silent.
    fn poll(&mut self, cx: &mut Context<'_>, boundary: &Boundary) -> Poll<Option<Bytes>> {
        while self.due.as_mut().poll(cx).is_ready() {
            self.due.as_mut().reset(Instant::now() + self.every);
            let Some(upstream) = holding::of(&self.session).filter(|_| boundary.reached()) else { continue };
            let policy = &self.session.server.settings().policy;
            match upstream.pings.due(policy, self.session.is_owned()) {
                PingAction::Ask => {
                    let mut event = Vec::new();
                    // Without an event id, because a client cannot resume from a ping.
                    sse::encode(&mut event, None, None, upstream.pings.next(&self.session.id).as_bytes());
                    return Poll::Ready(Some(event.into()));
                }
                PingAction::Nothing => {}
                PingAction::CloseStream => return Poll::Ready(None),
                PingAction::EndSession => {
                    self.session.end(Reason::ClientSilent);
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for PingTimer {
    fn drop(&mut self) {
        if let Some(upstream) = holding::of(&self.session) {
            upstream.pings.has_timer.set(false);
        }
    }
}

impl<B> HttpBody for ListenBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = poll_passed(&mut this.body, cx, &this.counters) {
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
