//! Sends requests to the upstream and tells when their bodies are handed over.

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
use leash_upstream::client::{Connector, Pool, PoolSettings, UpstreamError};
use leash_upstream::heap::HeapTrimmer;

/// The HTTP client of `connect`. Unlike the gateway's client, it tells when a body is handed over, and it has no timer
/// for idle connections: it finds a connection that is too old when it would use it. So an idle leash never wakes up.
#[derive(Clone)]
pub(crate) struct Wire {
    http: Pool<Sent>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Signalled when the body was handed to a connection. Dropped if that will never happen.
    pub(crate) handed: Option<oneshot::Sender<()>>,
}

/// The head of a response, and its body to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    /// The address that responded. After a redirect it is not the one that was requested.
    pub(crate) from: Uri,
}

impl Wire {
    pub(crate) fn new() -> Wire {
        Wire {
            http: Pool::new(
                Connector::default(),
                PoolSettings { most: limits::IDLE_CONNECTIONS, timed: false, trimmer: HeapTrimmer::default() },
            ),
        }
    }

    /// Sends a request and returns the head of the response. It follows redirects that keep the method and the origin.
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

/// A body that signals when the connection takes it.
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
            // The receiver may be dropped.
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
