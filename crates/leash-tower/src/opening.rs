//! Requests that may open a session: `initialize`, and others without a session id.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use hyper::{Request, Response};
use tokio::sync::oneshot;

use super::entry::{Entry, Flight, Opened, Shared};
use super::guardable::Guardable;
use super::registry::Refusal;
use super::request_body::RequestBody;
use super::response_body::{Guarded, GuardedBody};
use super::ticket::Ticket;
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
    let entry = match Entry::admit(shared, Ticket::of(&request), release::by(inner.clone())) {
        Ok(entry) => entry,
        Err(refusal) => return Ok(refused(&refusal)),
    };
    sweeper::keep_running(shared);
    let (tell, mut told) = oneshot::channel();
    let attempt = Attempt { entry: Arc::clone(&entry), shared: Arc::clone(shared), settled: false };
    // The request is in flight from now on. Even if the entry has ended already, the guard sees the answer.
    let flight = entry.begin(false);
    shared.tasks.spawn(async move {
        let answer = inner.call(request.map(RequestBody::client)).await;
        // The client may have disconnected; then the delivery is dropped.
        if let Some(delivery) = attempt.settle(answer, flight).await {
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
pub(super) async fn beside<S, B, R>(shared: &Arc<Shared>, mut inner: S, request: Request<B>) -> Guarded<R, S::Error>
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    let (ticket, service) = (Ticket::of(&request), inner.clone());
    let answer = inner.call(request.map(RequestBody::client)).await?;
    let Some(token) = token_of(&answer) else {
        return Ok(answer.map(|body| GuardedBody::of(body, None)));
    };
    if shared.known(&token).is_some() {
        return Ok(answer.map(|body| GuardedBody::of(body, None)));
    }
    match Entry::admit(shared, ticket.clone(), release::by(service.clone())) {
        Ok(entry) => {
            sweeper::keep_running(shared);
            let attempt = Attempt { entry: Arc::clone(&entry), shared: Arc::clone(shared), settled: false };
            let flight = entry.begin(false);
            match attempt.settle(Ok(answer), flight).await {
                Some(delivery) => delivery.take(),
                None => Ok(answer::no_session()),
            }
        }
        Err(refusal) => {
            // The limit of sessions is reached, so the session must not stay open.
            let _ = release::by(service)(ticket, token).await;
            Ok(refused(&refusal))
        }
    }
}

fn refused<R>(refusal: &Refusal) -> Response<GuardedBody<R>> {
    answer::unavailable(match refusal {
        Refusal::Full => "Too many sessions",
        Refusal::Closed => "The server is ending",
    })
}

/// The session id in an answer.
fn token_of<R>(answer: &Response<R>) -> Option<String> {
    let token = answer.headers().get(SESSION_ID).filter(|_| answer.status().is_success())?;
    token.to_str().ok().map(str::to_owned)
}

/// A session that may be opened. Dropped before it is settled, it discards the entry.
struct Attempt {
    entry: Arc<Entry>,
    shared: Arc<Shared>,
    settled: bool,
}

impl Attempt {
    /// Evaluates the service's answer. Returns `None` if the session ended before it was opened.
    async fn settle<R, E>(mut self, answer: Result<Response<R>, E>, flight: Option<Flight>) -> Option<Delivery<R, E>> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Some(Delivery::of(Err(error))),
        };
        let Some(token) = token_of(&answer) else {
            return Some(Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, None)))));
        };
        match self.entry.opened(&self.shared, &token) {
            Opened::Live => {
                self.settled = true;
                let mut delivery = Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, flight))));
                delivery.opened = Some(Arc::clone(&self.entry));
                Some(delivery)
            }
            Opened::Known(known) => {
                let flight = known.begin(false);
                Some(Delivery::of(Ok(answer.map(|body| GuardedBody::of(body, flight)))))
            }
            Opened::Late(reason) => {
                self.settled = true;
                drop(answer);
                Arc::clone(&self.entry).let_go(Arc::clone(&self.shared), reason).await;
                None
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.settled {
            self.entry.discard(&self.shared);
        }
    }
}

/// An answer on its way to the client. Dropped before the client takes it, it ends the session.
struct Delivery<R, E> {
    answer: Option<Result<Response<GuardedBody<R>>, E>>,
    opened: Option<Arc<Entry>>,
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
