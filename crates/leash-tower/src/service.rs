//! The service: which session a request belongs to, and what its answer says of that session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Body;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tower_service::Service;

use super::answer;
use super::body::{GuardedBody, RequestBody};
use super::entry::Entry;
use super::guardable::Guardable;
use super::opening;
use super::release;
use super::shared::Shared;
use super::ticket::Ticket;
use leash_model::receipt::Reason;
use leash_protocol::era;
use leash_protocol::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};

/// A service with a guard in front, made by [`SessionGuardLayer`](super::SessionGuardLayer).
#[derive(Clone, Debug)]
pub struct SessionGuard<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> SessionGuard<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> SessionGuard<S> {
        SessionGuard { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for SessionGuard<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<GuardedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready does the work; its clone may not be.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(route(Arc::clone(&self.shared), inner, request))
    }
}

async fn route<S, B, R>(
    shared: Arc<Shared>,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<GuardedBody<R>>, S::Error>
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Send + 'static,
{
    let stands_alone = is_modern(request.method(), request.headers());
    let token = request.headers().get(SESSION_ID).map(|token| token.to_str().unwrap_or_default());
    match token {
        Some(token) => match shared.known(token) {
            // A session that is known outranks what the request says of its era.
            Some(entry) => in_session(&entry, inner, request).await,
            None if stands_alone => opening::beside(&shared, inner, request).await,
            None => Ok(answer::no_session()),
        },
        None if *request.method() != Method::POST => {
            let answer = inner.call(request.map(RequestBody::client)).await?;
            Ok(answer.map(|body| GuardedBody::of(body, None)))
        }
        None if stands_alone => opening::beside(&shared, inner, request).await,
        None => opening::open(&shared, inner, request).await,
    }
}

/// Whether a request is of the modern era, which knows no sessions. A handshake that names a modern version is not: it does not say
/// its method in a header, as all others must.
fn is_modern(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    *method == Method::POST
        && text(PROTOCOL_VERSION).is_some_and(era::is_modern_version)
        && text(METHOD).is_some_and(|method| method != "initialize")
}

async fn in_session<S, B, R>(
    entry: &Arc<Entry>,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<GuardedBody<R>>, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    let Some(flight) = entry.begin(*request.method() == Method::GET) else {
        return Ok(answer::no_session());
    };
    let deletes = *request.method() == Method::DELETE;
    let ticket = Ticket::of(&request);
    // Dropped here with the client's connection, as without a guard: a DELETE that got lost this way is sent again when it is idle.
    let answer = inner.call(request.map(RequestBody::client)).await?;
    // What else there is below this guard may say of the id what it likes.
    if entry.is_for(&ticket) {
        match answer.status() {
            status if deletes && release::is_gone(status) => entry.deleted(status),
            // The service does not know it any more.
            StatusCode::NOT_FOUND => entry.end(Reason::UpstreamForgot),
            // Credentials are the last ones that were good, and not the last ones that were tried.
            status if status.is_success() => entry.refresh(ticket),
            _ => {}
        }
    }
    Ok(answer.map(|body| GuardedBody::of(body, Some(flight))))
}
