//! A connection that reads a stream of a session.

use std::task::{Context, Poll};
use std::{future::poll_fn, rc::Rc, time::Duration};

use bytes::Bytes;
use tokio::time::Interval;

use super::events::{Feed, pauses};
use super::log::{GET, NextMessage, StreamId};
use super::{bridge::Bridge, output::MessageSink as _, switch::PostAnswer};
use crate::state::session::InFlight;
use leash_model::limits;

/// A connection that reads a stream. When it is dropped, another connection can resume the stream.
pub(super) struct StreamReader {
    bridge: Rc<Bridge>,
    stream: StreamId,
    number: u32,
}

impl StreamReader {
    /// The first reader of a stream that has just begun.
    pub(super) fn first_of(bridge: &Rc<Bridge>, stream: StreamId) -> StreamReader {
        StreamReader { bridge: Rc::clone(bridge), stream, number: 0 }
    }

    /// A reader of the GET stream; `None` while another connection reads it.
    pub(super) fn listen(bridge: &Rc<Bridge>) -> Option<StreamReader> {
        let mut switch = bridge.switch.borrow_mut();
        let free = !switch.log.is_read(GET);
        free.then(|| StreamReader { bridge: Rc::clone(bridge), stream: GET, number: switch.log.listen() })
    }

    /// A reader of a stream from the event after `seen`; the connection that read it before is cut.
    pub(super) fn resume(bridge: &Rc<Bridge>, stream: StreamId, seen: u64) -> Option<StreamReader> {
        let number = bridge.switch.borrow_mut().log.resume(stream, seen)?;
        Some(StreamReader { bridge: Rc::clone(bridge), stream, number })
    }

    /// Returns how its POST is answered: by one body or by a stream. With `patient` it waits for one body however late
    /// it is, unless another message comes first.
    pub(super) async fn first(&self, batch: bool, patient: bool) -> PostAnswer {
        poll_fn(|cx| match self.bridge.switch.borrow_mut().first(self.stream, (batch, patient), cx.waker()) {
            PostAnswer::Wait => Poll::Pending,
            first => Poll::Ready(first),
        })
        .await
    }

    /// The next message.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<NextMessage> {
        let next = self.bridge.switch.borrow_mut().log.next(self.stream, self.number, cx.waker());
        match next {
            NextMessage::Wait => Poll::Pending,
            next => {
                self.bridge.drained();
                Poll::Ready(next)
            }
        }
    }

    /// The event that comes before any message, if the client's version understands it: an id to resume from, and how
    /// long to wait before resuming.
    pub(super) fn priming(&self) -> Option<Bytes> {
        if !self.bridge.primes() {
            return None;
        }
        let (stream, number) = (self.stream, self.bridge.switch.borrow_mut().log.name(self.stream));
        Some(format!("id: {stream}-{number}\nretry: {}\ndata: \n\n", limits::SSE_RETRY.as_millis()).into())
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.bridge.switch.borrow_mut().leave(self.stream, self.number);
        self.bridge.drained();
    }
}

/// A reader as the body of a response, with the values that live as long as the connection.
pub(super) struct StreamBody {
    reader: StreamReader,
    /// The timer of the pings to the client.
    ping: Option<Interval>,
    _held: InFlight,
}

impl StreamBody {
    pub(super) fn new(reader: StreamReader, held: InFlight) -> StreamBody {
        StreamBody { reader, ping: None, _held: held }
    }

    /// Sends the client the protocol's own ping at this interval.
    pub(super) fn pinging(mut self, every: Option<Duration>) -> StreamBody {
        self.reader.bridge.pings.client_is_alive();
        self.ping = every.map(pauses);
        self
    }
}

impl Feed for StreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextMessage> {
        // The ping is queued on the stream like any other message, so the poll below finds it.
        while self.ping.as_mut().is_some_and(|ping| ping.poll_tick(cx).is_ready()) {
            if !self.reader.bridge.ping() {
                return Poll::Ready(NextMessage::End);
            }
        }
        self.reader.poll_next(cx)
    }

    fn event_id(&self, number: u64) -> Option<String> {
        Some(format!("{}-{number}", self.reader.stream))
    }

    fn hold(&self, message: Bytes) -> Bytes {
        self.reader.bridge.account().hold(message)
    }

    fn sent(&self, bytes: usize) {
        let StreamReader { bridge, stream, .. } = &self.reader;
        bridge.switch.borrow_mut().log.moved(*stream);
        bridge.sent(bytes);
    }
}
