//! The HTTP client towards the upstream. It tells when the body of a request is handed over.

use std::task::{Context, Poll};
use std::{convert::Infallible, fmt, pin::Pin};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use tokio::sync::oneshot;

use crate::response::{RefusedResponse, ResponseKind};
use leash_model::limits;
use leash_upstream::client::{self, ConnectionPool, Connector, PoolSettings, UpstreamError};
use leash_upstream::heap::HeapTrimmer;

/// The HTTP client of `connect`. Unlike the gateway's client, it tells when a body is handed over, and it has no timer
/// for idle connections: it finds a connection that is too old when it would use it. So an idle leash never wakes up.
#[derive(Clone)]
pub(crate) struct HttpClient {
    http: ConnectionPool<SignallingBody>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Signalled when the body was handed to a connection. Dropped if that will never happen.
    pub(crate) handed: Option<oneshot::Sender<()>>,
}

impl HttpRequest {
    /// A GET.
    pub(crate) fn get(url: Uri, headers: HeaderMap) -> HttpRequest {
        HttpRequest { method: Method::GET, url, headers, body: Bytes::new(), handed: None }
    }

    /// A POST.
    pub(crate) fn post(url: Uri, headers: HeaderMap, body: Bytes) -> HttpRequest {
        HttpRequest { method: Method::POST, url, headers, body, handed: None }
    }
}

/// The head of a response, and its body to come.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) response: Response<Incoming>,
    /// The address that responded. After a redirect it is not the one that was requested.
    pub(crate) from: Uri,
}

impl HttpResponse {
    /// The kind of the response, from its head.
    pub(crate) fn kind(&self) -> ResponseKind {
        ResponseKind::of(self.response.status(), self.response.headers())
    }

    /// Reads the body of a refusal, as far as possible.
    pub(crate) async fn refusal(self) -> RefusedResponse {
        let status = self.response.status();
        let body = Limited::new(self.response.into_body(), limits::REFUSAL).collect();
        let body = tokio::time::timeout(limits::ACCEPT, body).await;
        RefusedResponse { status, body: body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default() }
    }
}

impl HttpClient {
    pub(crate) fn new() -> HttpClient {
        let settings = PoolSettings { most: limits::IDLE_CONNECTIONS, timed: false, trimmer: HeapTrimmer::default() };
        HttpClient { http: ConnectionPool::new(Connector::default(), settings) }
    }

    /// Sends a request and returns the head of the response. It follows redirects that keep the method and the origin.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, UpstreamError> {
        let HttpRequest { method, mut url, headers, body, mut handed } = request;
        let mut hops = 0;
        loop {
            let mut request = Request::new(SignallingBody { body: Some(body.clone()), handed: handed.take() });
            *request.method_mut() = method.clone();
            *request.uri_mut() = url.clone();
            *request.headers_mut() = headers.clone();
            let response = self.http.send(request).await?;
            match client::redirect(&url, &response) {
                Some(target) if hops < limits::REDIRECTS => (url, hops) = (target, hops + 1),
                _ => return Ok(HttpResponse { response, from: url }),
            }
        }
    }
}

/// A body that signals when the connection takes it.
#[derive(Debug)]
pub(crate) struct SignallingBody {
    body: Option<Bytes>,
    handed: Option<oneshot::Sender<()>>,
}

impl Body for SignallingBody {
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
