//! Which services can be guarded.

use hyper::{Request, Response};
use tower_service::Service;

use super::body::RequestBody;

/// A service that answers on after its client has left, and whose clones end its sessions: all of it may go from thread to thread.
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
