//! The service: finds the session of a request, and updates the session from the answer.

use std::task::{Context, Poll};
use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, body::Body};
use tower_service::Service;

use super::entry::{SessionEntry, Shared};
use super::guardable::Guardable;
use super::request_body::RequestBody;
use super::request_template::RequestTemplate;
use super::response_body::{Guarded, GuardedBody};
use super::{answer, opening, release};
use leash_model::receipt::Reason;
use leash_protocol::era;
use leash_protocol::headers::{METHOD, PROTOCOL_VERSION, named_session};

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
        // `poll_ready` was called on this instance, so it handles the call; the clone may not be ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(route(Arc::clone(&self.shared), inner, request))
    }
}

async fn route<S, B, R>(shared: Arc<Shared>, mut inner: S, request: Request<B>) -> Guarded<R, S::Error>
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    let stands_alone = is_modern(request.method(), request.headers());
    match named_session(request.headers()) {
        Some(token) => match shared.find(token) {
            // A known session takes precedence over the era that the request claims.
            Some(entry) => in_session(&entry, inner, request).await,
            None if stands_alone => opening::serve_without_session(&shared, inner, request).await,
            None => Ok(answer::no_session()),
        },
        None if *request.method() != Method::POST => {
            let answer = inner.call(request.map(RequestBody::client)).await?;
            Ok(answer.map(|body| GuardedBody::of(body, None)))
        }
        None if stands_alone => opening::serve_without_session(&shared, inner, request).await,
        None => opening::open(&shared, inner, request).await,
    }
}

/// True if a request is of the modern era, which has no sessions. A handshake that names a modern version is not: it
/// does not give its method in a header, as all other modern requests must.
fn is_modern(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    *method == Method::POST
        && text(PROTOCOL_VERSION).is_some_and(era::is_modern_version)
        && text(METHOD).is_some_and(|method| method != "initialize")
}

async fn in_session<S, B, R>(entry: &Arc<SessionEntry>, mut inner: S, request: Request<B>) -> Guarded<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    let Some(session_use) = entry.begin(*request.method() == Method::GET) else {
        return Ok(answer::no_session());
    };
    let deletes = *request.method() == Method::DELETE;
    let template = RequestTemplate::of(&request);
    // This call is dropped with the client's connection, as without a guard. If it was a DELETE, the guard sends one
    // again when the session is idle.
    let answer = inner.call(request.map(RequestBody::client)).await?;
    // Other paths below this guard may answer for the same id; their answers say nothing about this session.
    if entry.is_for(&template) {
        let status = answer.status();
        match release::gone_by(status).filter(|_| deletes) {
            Some(how) => entry.deleted(how, status),
            // The service no longer knows the session.
            None if status == StatusCode::NOT_FOUND => entry.end(Reason::UpstreamForgot),
            // Only a successful request updates the ticket: it keeps the last accepted credentials, not the last tried
            // ones.
            None if status.is_success() => entry.refresh(template),
            None => {}
        }
    }
    Ok(answer.map(|body| GuardedBody::of(body, Some(session_use))))
}
