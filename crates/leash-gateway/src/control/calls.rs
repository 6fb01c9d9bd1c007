//! Calls of MCP clients to the servers of a job, from the head of the request to the last byte of the answer.

use std::task::{Context, Poll};
use std::{future::Future, pin::Pin, rc::Rc};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::job::{Job, Using};
use crate::guard::{self, Boundary};
use crate::respond::{self, Answer};
use crate::{call::Call, config::ServerTarget, state::gateway::Gateway, state::server::Server};
use leash_protocol::envelope::{EnvelopeKind, Message, codes, error_body};
use leash_protocol::sse;
use leash_upstream::address::HttpTransport;
use leash_upstream::body::{Body, BodyError, Stream};

/// Requests in flight at an HTTP server, which an abort cancels.
struct AbortableRequests {
    server: Rc<Server>,
    /// Their ids.
    ids: Vec<Box<RawValue>>,
    batch: bool,
    aborted: CancellationToken,
}

impl AbortableRequests {
    /// The requests of a call; `None` if it has none that could be cancelled. By the protocol, `initialize` cannot be.
    fn of(server: &Rc<Server>, call: &Call) -> Option<AbortableRequests> {
        let settings = server.settings();
        let ServerTarget::Url(upstream) = &settings.target else { return None };
        if upstream.transport == HttpTransport::Sse || call.method != Method::POST {
            return None;
        }
        let message = Message::read(&call.body).ok()?;
        let requests = message.envelopes().iter().filter(|envelope| envelope.kind == EnvelopeKind::Request);
        let requests = requests.filter(|envelope| envelope.method.as_deref() != Some("initialize"));
        let ids: Vec<_> = requests.filter_map(|envelope| envelope.id).map(ToOwned::to_owned).collect();
        if ids.is_empty() {
            return None;
        }
        server.calls.update(|calls| calls + ids.len());
        let batch = matches!(message, Message::Batch(_));
        Some(AbortableRequests { server: Rc::clone(server), ids, batch, aborted: server.aborted() })
    }

    /// The errors that its requests are answered with.
    fn errors(&self) -> Vec<Vec<u8>> {
        self.ids.iter().map(|id| error_body(Some(id), codes::SERVER, "aborted", None)).collect()
    }

    /// The response to an aborted call that the server has not answered.
    fn answer(&self) -> Answer {
        let errors = self.errors();
        let body = match (self.batch, errors.first()) {
            (false, Some(only)) => only.clone(),
            _ => [b"[".as_slice(), &errors.join(&b","[..]), b"]"].concat(),
        };
        respond::json(StatusCode::OK, body)
    }
}

impl Drop for AbortableRequests {
    fn drop(&mut self) {
        self.server.calls.update(|calls| calls - self.ids.len());
    }
}

/// The destination of a call.
pub(crate) struct CallTarget {
    pub(crate) job: Rc<Job>,
    pub(crate) server: Rc<Server>,
}

/// Serves a call. The call counts as a use of the job until the last byte of its answer. It is cut when the job is
/// over, and an abort cancels it.
pub(crate) async fn serve<F, A>(gateway: &Rc<Gateway>, to: CallTarget, call: Call, dispatch: F) -> Answer
where
    F: FnOnce(Call) -> A,
    A: Future<Output = Answer>,
{
    let CallTarget { job, server } = to;
    let (using, flight) = (job.used(), AbortableRequests::of(&server, &call));
    if !job.is_alive() {
        return respond::no_session();
    }
    let cancel = flight.as_ref().and_then(|flight| guard::cancellation(&server, &call, &flight.ids));
    let aborted = async {
        match &flight {
            Some(flight) => flight.aborted.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let answer = tokio::select! {
        biased;
        () = job.cut.cancelled() => return respond::no_session(),
        () = aborted => {
            if let Some(cancel) = cancel {
                cancel.send(gateway);
            }
            return flight.map_or_else(respond::no_session, |flight| flight.answer());
        }
        answer = dispatch(call) => answer,
    };
    answer.map(|body| match body {
        whole @ Body::Whole(_) => whole,
        Body::Stream(stream) => Body::stream(CallBody {
            stream,
            cut: Box::pin(job.cut.clone().cancelled_owned()),
            abort: flight.map(|flight| CallAbort {
                waiting: Box::pin(flight.aborted.clone().cancelled_owned()),
                flight,
                cancel,
                gateway: Rc::clone(gateway),
                boundary: Boundary::default(),
            }),
            over: false,
            _using: using,
        }),
    })
}

/// The body of an answer.
struct CallBody {
    stream: Stream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    abort: Option<CallAbort>,
    over: bool,
    _using: Using,
}

/// The abort of an answer that has begun.
struct CallAbort {
    waiting: Pin<Box<WaitForCancellationFutureOwned>>,
    flight: AbortableRequests,
    cancel: Option<guard::Cancellation>,
    gateway: Rc<Gateway>,
    /// Tracks whether the stream is between two events.
    boundary: Boundary,
}

impl CallAbort {
    /// Cancels the requests. Returns the last bytes of the body: errors as events, if the answer is an event stream and
    /// no event is half written.
    fn end(self) -> Option<Bytes> {
        if let Some(cancel) = self.cancel {
            cancel.send(&self.gateway);
        }
        let mut words = Vec::new();
        if self.boundary.reached() {
            self.flight.errors().iter().for_each(|error| sse::encode(&mut words, None, Some("message"), error));
        }
        (!words.is_empty()).then(|| words.into())
    }
}

impl HttpBody for CallBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        let abort = this.abort.take_if(|abort| abort.waiting.as_mut().poll(cx).is_ready());
        if let Some(abort) = abort {
            this.over = true;
            return match abort.end() {
                Some(words) => Poll::Ready(Some(Ok(Frame::data(words)))),
                // The body ends with an error, so that the client does not take the half answer for the whole.
                None => Poll::Ready(Some(Err("aborted".into()))),
            };
        }
        if let Poll::Ready(frame) = this.stream.as_mut().poll_frame(cx) {
            if let (Some(abort), Some(Ok(frame))) = (&mut this.abort, &frame)
                && let Some(bytes) = frame.data_ref()
            {
                abort.boundary.pass(bytes);
            }
            return Poll::Ready(frame);
        }
        // The stream is polled first, so its pending bytes are sent before the cut.
        this.cut.as_mut().poll(cx).map(|()| None)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }
}
