//! Requests that may open a session: `initialize`, and others without a session id.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Request, Response, body::Body};
use tokio::sync::oneshot;

use super::entry::{OpenResult, SessionEntry, SessionUse, Shared};
use super::guardable::Guardable;
use super::registry::SessionRefusal;
use super::request_body::RequestBody;
use super::request_template::RequestTemplate;
use super::response_body::{Guarded, GuardedBody};
use super::{answer, release, sweeper};
use leash_model::receipt::Reason;
use leash_protocol::headers::SESSION_ID;

/// Serves a request without a session, which may open one. The guard sees the service's answer even if the client
/// disconnects.
pub(super) async fn open<S, B, R>(shared: &Arc<Shared>, mut inner: S, request: Request<B>) -> Guarded<R, S::Error>
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    let entry = match SessionEntry::admit(shared, RequestTemplate::of(&request), release::by(inner.clone())) {
        Ok(entry) => entry,
        Err(refusal) => return Ok(refused(&refusal)),
    };
    sweeper::ensure_running(shared);
    let (tell, mut told) = oneshot::channel();
    let attempt = OpeningAttempt { entry: Arc::clone(&entry), shared: Arc::clone(shared), settled: false };
    // The request is in flight from now on. Even if the entry has ended already, the guard sees the answer.
    let session_use = entry.begin(false);
    shared.tasks.spawn(async move {
        let answer = inner.call(request.map(RequestBody::client)).await;
        // The client may have disconnected; then the delivery is dropped.
        if let Some(delivery) = attempt.settle(answer, session_use).await {
            let _ = tell.send(delivery);
        }
    });
    let reason = tokio::select! {
        biased;
        delivery = &mut told => return match delivery {
            Ok(delivery) => delivery.take(),
            // The entry ended meanwhile, or the service panicked.
            Err(_) => Ok(answer::unavailable("The server cannot open a session now")),
        },
        reason = entry.ending() => reason,
    };
    Ok(match reason {
        Some(Reason::NotInitialized) => answer::not_initialized(),
        _ => answer::unavailable("The server is ending"),
    })
}

/// Serves a request that needs no session, and that ends with its connection. If the service opens a session all the
/// same, the guard takes it.
pub(super) async fn serve_without_session<S, B, R>(
    shared: &Arc<Shared>,
    mut inner: S,
    request: Request<B>,
) -> Guarded<R, S::Error>
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    let (template, service) = (RequestTemplate::of(&request), inner.clone());
    let answer = inner.call(request.map(RequestBody::client)).await?;
    let Some(token) = token_of(&answer) else {
        return Ok(answer.map(|body| GuardedBody::of(body, None)));
    };
    if shared.find(&token).is_some() {
        return Ok(answer.map(|body| GuardedBody::of(body, None)));
    }
    match SessionEntry::admit(shared, template.clone(), release::by(service.clone())) {
        Ok(entry) => {
            sweeper::ensure_running(shared);
            let attempt = OpeningAttempt { entry: Arc::clone(&entry), shared: Arc::clone(shared), settled: false };
            let session_use = entry.begin(false);
            match attempt.settle(Ok(answer), session_use).await {
                Some(delivery) => delivery.take(),
                None => Ok(answer::no_session()),
            }
        }
        Err(refusal) => {
            // The limit of sessions is reached, so the session must not stay open.
            let _ = release::by(service)(template, token).await;
            Ok(refused(&refusal))
        }
    }
}

fn refused<R>(refusal: &SessionRefusal) -> Response<GuardedBody<R>> {
    answer::unavailable(match refusal {
        SessionRefusal::Full => "Too many sessions",
        SessionRefusal::Closed => "The server is ending",
    })
}

/// The session id in an answer.
fn token_of<R>(answer: &Response<R>) -> Option<String> {
    let token = answer.headers().get(SESSION_ID).filter(|_| answer.status().is_success())?;
    token.to_str().ok().map(str::to_owned)
}

/// A session that may be opened. Dropped before it is settled, it discards the entry.
struct OpeningAttempt {
    entry: Arc<SessionEntry>,
    shared: Arc<Shared>,
    settled: bool,
}

impl OpeningAttempt {
    /// Evaluates the service's answer. Returns `None` if the session ended before it was opened.
    async fn settle<R, E>(
        mut self,
        answer: Result<Response<R>, E>,
        session_use: Option<SessionUse>,
    ) -> Option<Delivery<R, E>> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Some(Delivery::of(Err(error))),
        };
        let Some(token) = token_of(&answer) else {
            return Some(Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, None)))));
        };
        match self.entry.opened(&self.shared, &token) {
            OpenResult::Live => {
                self.settled = true;
                let mut delivery = Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, session_use))));
                delivery.opened = Some(Arc::clone(&self.entry));
                Some(delivery)
            }
            OpenResult::Existing(existing) => {
                let session_use = existing.begin(false);
                Some(Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, session_use)))))
            }
            OpenResult::Late(reason) => {
                self.settled = true;
                drop(answer);
                Arc::clone(&self.entry).delete(Arc::clone(&self.shared), reason).await;
                None
            }
        }
    }
}

impl Drop for OpeningAttempt {
    fn drop(&mut self) {
        if !self.settled {
            self.entry.discard(&self.shared);
        }
    }
}

/// An answer on its way to the client. Dropped before the client takes it, it ends the session.
struct Delivery<R, E> {
    answer: Option<Result<Response<GuardedBody<R>>, E>>,
    opened: Option<Arc<SessionEntry>>,
}

impl<R, E> Delivery<R, E> {
    fn of(answer: Result<Response<GuardedBody<R>>, E>) -> Delivery<R, E> {
        Delivery { answer: Some(answer), opened: None }
    }

    fn take(mut self) -> Result<Response<GuardedBody<R>>, E> {
        self.opened = None;
        self.answer.take().expect("a delivery is taken once")
    }
}

impl<R, E> Drop for Delivery<R, E> {
    fn drop(&mut self) {
        if let Some(entry) = self.opened.take() {
            entry.end(Reason::ClientLeft);
        }
    }
}
