//! Ends a session in the service below: sends DELETE until the answer is final or the tries are used up.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::{Request, Response, StatusCode};
use tower_service::Service;

use super::body::RequestBody;
use super::guardable::Guardable;
use super::ticket::Ticket;
use leash_model::limits;
use leash_model::receipt::{DeleteHow, Reason};

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The id that its client had. The id of a living session gives access to it; this session has ended.
    pub session: String,
    /// The reason for its end.
    pub reason: Reason,
    /// The result of the DELETE.
    pub how: DeleteHow,
    /// The last status of the service, if it answered.
    pub status: Option<u16>,
    /// The number of times that the guard sent DELETE; 0 if the client's own was enough.
    pub tries: u32,
    /// The time from the decision to the service's answer.
    pub took: Duration,
}

impl Ended {
    /// True if the service no longer has the session.
    pub fn is_gone(&self) -> bool {
        matches!(self.how, DeleteHow::Deleted | DeleteHow::Forgotten | DeleteHow::Closed)
    }
}

/// The result of a DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deleted {
    pub(super) how: DeleteHow,
    pub(super) status: Option<StatusCode>,
    pub(super) tries: u32,
}

/// A running DELETE.
pub(super) type Deleting = Pin<Box<dyn Future<Output = Deleted> + Send>>;

/// Ends a session in the service that opened it, whatever the type of that service.
pub(super) type Release = Box<dyn Fn(Ticket, String) -> Deleting + Send + Sync>;

/// The release function for the sessions of this service.
pub(super) fn by<S, B, R>(service: S) -> Release
where
    S: Guardable<B, R>,
    R: Send + 'static,
    B: Send + 'static,
{
    // A service need not be `Sync`, so a lock is held while it is cloned.
    let service = Mutex::new(service);
    Box::new(move |ticket, token| {
        let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(delete::<S, B, R>(service, ticket, token))
    })
}

async fn delete<S, B, R>(service: S, ticket: Ticket, token: String) -> Deleted
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
{
    let mut number = 0;
    loop {
        number += 1;
        // A new clone each time: a service that failed may not be called again.
        let mut service = service.clone();
        let sent = async {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(ticket.delete(&token)).await
        };
        let status = match tokio::time::timeout(limits::DELETE_TRY, sent).await {
            Ok(Ok(answer)) => Some(answer.status()),
            Ok(Err(_)) | Err(_) => None,
        };
        match judge(status) {
            Some(how) => return Deleted { how, status, tries: number },
            None if number >= limits::DELETE_TRIES => {
                return Deleted { how: DeleteHow::Unreachable, status, tries: number };
            }
            None => {
                let wait = limits::DELETE_BACK_OFF * 2_u32.saturating_pow(number - 1);
                tokio::time::sleep_until(tokio::time::Instant::now() + wait).await;
            }
        }
    }
}

/// The meaning of a DELETE's status; `None` if the guard should send it again.
pub(super) fn judge(status: Option<StatusCode>) -> Option<DeleteHow> {
    match status?.as_u16() {
        200..=299 => Some(DeleteHow::Deleted),
        404 | 410 => Some(DeleteHow::Forgotten),
        401 | 403 | 407 => Some(DeleteHow::Denied),
        // With these (timeout, too early, too many requests, server errors) the service says that a later try may
        // succeed.
        408 | 425 | 429 | 500 | 502..=599 => None,
        _ => Some(DeleteHow::Unsupported),
    }
}

/// True if the answer to the client's own DELETE shows that the session is gone.
pub(super) fn is_gone(status: StatusCode) -> bool {
    matches!(judge(Some(status)), Some(DeleteHow::Deleted | DeleteHow::Forgotten))
}
