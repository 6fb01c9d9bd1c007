//! A stream of a session as the body of an HTTP response.

use std::task::{Context, Poll, ready};
use std::{collections::VecDeque, pin::Pin, time::Duration};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use memchr::memchr;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::log::NextMessage;
use crate::respond::Answer;
use leash_model::limits;
use leash_protocol::sse;
use leash_upstream::body::{Body, BodyError, PIECE};

/// A message up to this size is copied into one piece with its id; a larger one is not copied.
const COPIED: usize = 16 * 1024;

/// The connection of a stream was cut; the stream itself continues.
#[derive(Debug, thiserror::Error)]
#[error("another connection reads the stream, or the client did not read it")]
struct ConnectionCut;

/// The source of a stream's messages.
pub(super) trait Feed: Unpin + 'static {
    /// The next message.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextMessage>;
    /// The id of an event with this number, if it has one.
    fn event_id(&self, number: u64) -> Option<String>;
    /// The same bytes, charged to the account until they are in a socket.
    fn hold(&self, message: Bytes) -> Bytes;
    /// Notes that this many bytes were sent.
    fn sent(&self, bytes: usize);
}

/// The body of an event stream.
pub(super) struct Events<F> {
    feed: F,
    /// The pieces to send before the feed is polled again.
    ready: VecDeque<Bytes>,
    keep_alive: Interval,
}

impl<F: Feed> Events<F> {
    /// The response with this stream as its body, beginning with `first`.
    pub(super) fn answer(feed: F, first: Option<Bytes>) -> Answer {
        let keep_alive = pauses(limits::SSE_KEEP_ALIVE);
        event_stream(Body::stream(Events { feed, ready: first.into_iter().collect(), keep_alive }))
    }

    fn send(&self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.feed.sent(bytes.len());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl<F: Feed> HttpBody for Events<F> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let events = self.get_mut();
        if let Some(bytes) = events.ready.pop_front() {
            return events.send(bytes);
        }
        match events.feed.poll_next(cx) {
            Poll::Ready(NextMessage::Message(number, message)) => {
                let id = events.feed.event_id(number);
                encode(&mut events.ready, id.as_deref(), message, |message| events.feed.hold(message));
                let first = events.ready.pop_front().unwrap_or_default();
                events.send(first)
            }
            Poll::Ready(NextMessage::Cut) => Poll::Ready(Some(Err(Box::new(ConnectionCut)))),
            Poll::Ready(NextMessage::End | NextMessage::Wait) => Poll::Ready(None),
            Poll::Pending => {
                ready!(events.keep_alive.poll_tick(cx));
                events.send(Bytes::from_static(sse::KEEP_ALIVE))
            }
        }
    }
}

/// Ticks with this pause between them. Ticks that were missed while the body was not polled are skipped.
pub(super) fn pauses(pause: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + pause, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The response with an event stream as its body.
fn event_stream(body: Body) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Otherwise nginx and similar proxies wait until their buffer is full.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

/// Encodes a message as an event, in pieces. `hold` charges a large one to the account.
fn encode(out: &mut VecDeque<Bytes>, id: Option<&str>, message: Bytes, hold: impl FnOnce(Bytes) -> Bytes) {
    let (mut rest, end) = if message.len() <= COPIED || memchr(b'\r', &message).is_some() {
        let mut event = Vec::with_capacity(message.len() + 64);
        sse::encode(&mut event, id, Some("message"), &message);
        (Bytes::from(event), Bytes::new())
    } else {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        out.push_back(format!("{id}event: message\ndata: ").into());
        (message, Bytes::from_static(b"\n\n"))
    };
    if rest.len() > COPIED {
        rest = hold(rest);
    }
    while rest.len() > PIECE {
        out.push_back(rest.split_to(PIECE));
    }
    out.extend([rest, end].into_iter().filter(|piece| !piece.is_empty()));
}
