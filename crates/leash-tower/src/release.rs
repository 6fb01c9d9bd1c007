//! Ends a session in the service below: sends DELETE until the answer is final or the tries are used up.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::{Request, Response, StatusCode};
use tower_service::Service;

use super::{guardable::Guardable, request_body::RequestBody, request_template::RequestTemplate};
use leash_model::delete::{DeleteDecision, judge, meaning, needs_body};
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
        self.how.is_gone()
    }
}

/// The result of a DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeleteOutcome {
    pub(super) how: DeleteHow,
    pub(super) status: Option<StatusCode>,
    pub(super) tries: u32,
}

/// A running DELETE.
pub(super) type Deleting = Pin<Box<dyn Future<Output = DeleteOutcome> + Send>>;

/// Ends a session in the service that opened it, whatever the type of that service.
pub(super) type Release = Box<dyn Fn(RequestTemplate, String) -> Deleting + Send + Sync>;

/// The release function for the sessions of this service.
pub(super) fn by<S, B, R>(service: S) -> Release
where
    S: Guardable<B, R>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    // A service need not be `Sync`, so a lock is held while it is cloned.
    let service = Mutex::new(service);
    Box::new(move |template, token| {
        let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(delete::<S, B, R>(service, template, token))
    })
}

async fn delete<S, B, R>(service: S, template: RequestTemplate, token: String) -> DeleteOutcome
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    R: Body<Data = Bytes>,
{
    let mut number = 0;
    loop {
        number += 1;
        // A new clone each time: a service that failed may not be called again.
        let mut service = service.clone();
        let sent = async {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            let answer = service.call(template.delete(&token)).await?;
            let status = answer.status();
            let body = if needs_body(status.as_u16()) { read(answer.into_body()).await } else { Vec::new() };
            Ok::<_, S::Error>((Some(status), body))
        };
        let (status, body) = match tokio::time::timeout(limits::DELETE_TRY, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => (None, Vec::new()),
        };
        match judge(status.map(|status| status.as_u16()), &body, number) {
            DeleteDecision::Settled(how) => return DeleteOutcome { how, status, tries: number },
            DeleteDecision::Again(wait) => tokio::time::sleep_until(tokio::time::Instant::now() + wait).await,
        }
    }
}

/// Reads a body. One that breaks off or is too long counts as empty.
async fn read(body: impl Body<Data = Bytes>) -> Vec<u8> {
    let (mut body, mut text) = (pin!(body), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) if text.len() + data.len() <= limits::DELETE_BODY => text.extend_from_slice(&data),
            Ok(Err(_trailers)) => {}
            Ok(Ok(_)) | Err(_) => return Vec::new(),
        }
    }
    text
}

/// The result of the client's own DELETE, if its status shows that the session is gone. The body is the client's, so a
/// status that needs it for that (400) shows nothing: the guard sends its own DELETE later.
pub(super) fn gone_by(status: StatusCode) -> Option<DeleteHow> {
    meaning(status.as_u16(), &[]).filter(|how| how.is_gone())
}
