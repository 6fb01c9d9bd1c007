//! Requests to the upstream, and when their bodies are on the way.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use tokio::sync::oneshot;

use leash_model::limits;
use leash_upstream::client;
use leash_upstream::client::{Care, Connector, Pool, UpstreamError};
use leash_upstream::heap::Tide;

/// The client of `connect`. It differs from the gateway's in that it tells when a body is handed over, and that no timer looks
/// after idle connections: one that is too old is found out when it would be used, and nothing wakes an idle leash.
#[derive(Clone)]
pub(crate) struct Wire {
    http: Pool<Sent>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// What is sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Told when the body was handed to a connection; dropped when it never will be.
    pub(crate) handed: Option<oneshot::Sender<()>>,
}

/// The head of an answer, and the body to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    /// Where the answer came from, which is another address after a redirect.
    pub(crate) from: Uri,
}

impl Wire {
    pub(crate) fn new() -> Wire {
        Wire {
            http: Pool::new(
                Connector::new(),
                Care { most: limits::IDLE_CONNECTIONS, timed: false, tide: Tide::default() },
            ),
        }
    }

    /// Sends a request and returns the head of the answer. Redirects that keep the method and the origin are followed.
    pub(crate) async fn send(&self, outgoing: Outgoing) -> Result<Answer, UpstreamError> {
        let Outgoing { method, mut url, headers, body, mut handed } = outgoing;
        let mut hops = 0;
        loop {
            let mut request = Request::new(Sent { body: Some(body.clone()), handed: handed.take() });
            *request.method_mut() = method.clone();
            *request.uri_mut() = url.clone();
            *request.headers_mut() = headers.clone();
            let response = self.http.send(request).await?;
            match client::redirect(&url, &response) {
                Some(target) if hops < limits::REDIRECTS => (url, hops) = (target, hops + 1),
                _ => return Ok(Answer { response, from: url }),
            }
        }
    }
}

/// A body that tells when it is taken.
#[derive(Debug)]
pub(crate) struct Sent {
    body: Option<Bytes>,
    handed: Option<oneshot::Sender<()>>,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(handed) = self.handed.take() {
            // Nobody may be waiting for it.
            let _ = handed.send(());
        }
        Poll::Ready(self.body.take().filter(|body| !body.is_empty()).map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }
}
