//! Response bodies on their way to the client. Every byte passes unchanged.

use std::task::{Context, Poll, ready};
use std::{future::Future, pin::Pin, rc::Rc};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::holding;
use crate::{metrics::Counters, state::session::InFlight};
use leash_upstream::{body::BodyError, deadline::Deadline};

/// The limit for how long a response may go on.
pub(super) enum ResponseLimit {
    /// No limit.
    End,
    /// Until its session is over. The response counts as in flight until then.
    Session(InFlight),
    /// Until the gateway is told to stop.
    Stopping(Deadline),
}

impl ResponseLimit {
    /// Completes when the response must end.
    fn over(&self) -> Pin<Box<dyn Future<Output = ()>>> {
        match self {
            ResponseLimit::End => Box::pin(std::future::pending()),
            ResponseLimit::Session(flight) => match holding::of(&flight.session) {
                Some(upstream) => Box::pin(upstream.gone().cancelled_owned()),
                None => Box::pin(std::future::pending()),
            },
            ResponseLimit::Stopping(deadline) => {
                let deadline = deadline.clone();
                Box::pin(async move { deadline.announced().await })
            }
        }
    }
}

/// Tells when a response must end. It creates its future when it is first polled, because most responses are complete
/// at once and need none.
pub(super) struct CutOff {
    until: ResponseLimit,
    over: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl CutOff {
    pub(super) fn new(until: ResponseLimit) -> CutOff {
        CutOff { until, over: None }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.until, ResponseLimit::End) {
            return Poll::Pending;
        }
        self.over.get_or_insert_with(|| self.until.over()).as_mut().poll(cx)
    }
}

/// An upstream's body, passed on to the client.
pub(super) struct ForwardedBody {
    body: Incoming,
    counters: Rc<Counters>,
    cut: CutOff,
}

impl ForwardedBody {
    pub(super) fn new(body: Incoming, counters: Rc<Counters>, until: ResponseLimit) -> ForwardedBody {
        ForwardedBody { body, counters, cut: CutOff::new(until) }
    }
}

impl HttpBody for ForwardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = poll_passed(&mut this.body, cx, &this.counters) {
            return Poll::Ready(frame);
        }
        ready!(this.cut.poll(cx));
        // For a response of known length the client sees an error; a stream simply ends.
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Polls a body, and counts the bytes that pass.
pub(super) fn poll_passed<B>(
    body: &mut B,
    cx: &mut Context<'_>,
    counters: &Counters,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>
where
    B: HttpBody<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    Pin::new(body).poll_frame(cx).map_err(Into::into).map_ok(|frame| {
        counters.sent(frame.data_ref().map_or(0, Bytes::len));
        frame
    })
}

/// Finds the places in an event stream where leash may insert an event: between two events.
#[derive(Debug)]
pub(crate) struct Boundary {
    /// The current line has no byte yet.
    blank: bool,
    /// The last byte was a CR; an LF that follows belongs to it.
    after_cr: bool,
    /// The last line was blank, or there was none: no event is incomplete.
    reached: bool,
}

impl Default for Boundary {
    fn default() -> Boundary {
        Boundary { blank: true, after_cr: false, reached: true }
    }
}

impl Boundary {
    /// True if the last event is complete.
    pub(crate) fn reached(&self) -> bool {
        self.reached
    }

    /// Takes note of bytes that were sent. Only the line endings at their end matter.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        let text = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
        if text.is_some() {
            *self = Boundary { blank: false, after_cr: false, reached: false };
        }
        for byte in &bytes[text.map_or(0, |at| at + 1)..] {
            let rest_of_crlf = *byte == b'\n' && self.after_cr;
            self.after_cr = *byte == b'\r';
            if !rest_of_crlf {
                self.reached |= self.blank;
                self.blank = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_protocol::sse::Splitter;
    use proptest::prelude::*;

    fn reached(parts: &[&str]) -> bool {
        let mut boundary = Boundary::default();
        parts.iter().for_each(|part| boundary.pass(part.as_bytes()));
        boundary.reached()
    }

    #[test]
    fn events_end_with_a_blank_line() {
        for whole in ["", "data: x\n\n", "data: x\r\n\r\n", "data: x\r\r", ": c\n\n", "\n", "data: x\n\r\n", "\n\n"] {
            assert!(reached(&[whole]), "{whole:?}");
            let bytes: Vec<String> = whole.chars().map(String::from).collect();
            assert!(reached(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), "{whole:?} byte by byte");
        }
        for half in
            ["d", "data: x", "data: x\n", "data: x\r\n", "data: x\r", "data: x\n\ndata: y", "data: x\n\ndata: y\n"]
        {
            assert!(!reached(&[half]), "{half:?}");
        }
    }

    proptest! {
        /// At a boundary the splitter has no incomplete event, however the bytes were cut.
        #[test]
        fn boundary_agrees_with_the_splitter(parts in prop::collection::vec("[ax:\r\n]{0,5}", 0..12)) {
            let (mut boundary, mut splitter) = (Boundary::default(), Splitter::new(1 << 20));
            for part in &parts {
                boundary.pass(part.as_bytes());
                splitter.push(part.as_bytes());
            }
            while splitter.next_event().is_some() {}
            while splitter.finish().is_some() {}
            // If a CR ended an event, the LF after it is the first byte of the next event, where it has no effect.
            let nothing = splitter.rest().is_empty() || splitter.rest() == b"\n";
            prop_assert_eq!(boundary.reached(), nothing, "{:?}", parts);
        }
    }
}
