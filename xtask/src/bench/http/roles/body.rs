//! The response bodies of the roles.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName};
use hyper::{Response, StatusCode};
use tokio::sync::oneshot;

/// The session header.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The body of an answer.
pub(crate) enum Answer {
    /// The whole body; `None` after it was sent.
    Whole(Option<Bytes>),
    /// An event stream without events, until its sender is dropped.
    Quiet(oneshot::Receiver<Infallible>),
    /// The body of another server's response, passed on as it arrives.
    Passing(Incoming),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Quiet(end) => {
                // Nothing is ever sent; it only ends.
                let Err(_) = ready!(Pin::new(end).poll(context));
                Poll::Ready(None)
            }
            Self::Passing(incoming) => Pin::new(incoming).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Quiet(_) => false,
            Self::Passing(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Quiet(_) => SizeHint::default(),
            Self::Passing(incoming) => incoming.size_hint(),
        }
    }
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(None));
    *response.status_mut() = status;
    response
}

/// A JSON answer.
pub(super) fn json(bytes: Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Some(bytes)));
    response.headers_mut().insert(CONTENT_TYPE, const { hyper::header::HeaderValue::from_static("application/json") });
    response
}

/// An event stream that ends when the sender is dropped.
pub(super) fn quiet() -> (oneshot::Sender<Infallible>, Response<Answer>) {
    let (keep, end) = oneshot::channel();
    let mut response = Response::new(Answer::Quiet(end));
    let kind = const { hyper::header::HeaderValue::from_static("text/event-stream") };
    response.headers_mut().insert(CONTENT_TYPE, kind);
    (keep, response)
}

/// 128 random bits.
pub(super) fn session_id() -> String {
    format!("{:016x}{:016x}", testkit::random(), testkit::random())
}
