//! The services that can be guarded.

use hyper::{Request, Response};
use tower_service::Service;

use super::request_body::RequestBody;

/// A service whose calls can outlive their clients, and whose clones end its sessions. So all of it must be able to
/// move between threads.
pub(super) trait Guardable<B, R>:
    Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send + 'static, Error: Send + 'static>
    + Clone
    + Send
    + 'static
{
}

impl<S, B, R> Guardable<B, R> for S where
    S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send + 'static, Error: Send + 'static>
        + Clone
        + Send
        + 'static
{
}
