//! The responses that the guard itself gives.

use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::response_body::GuardedBody;
use leash_protocol::envelope::{codes, error_body};

/// 404: the session has ended or never existed. The client must begin a new one.
pub(super) fn no_session<B>() -> Response<GuardedBody<B>> {
    // -32001 is the code that the server of the TypeScript SDK uses here.
    error(StatusCode::NOT_FOUND, -32001, "Session not found")
}

/// 503: the limit of sessions is reached, or the server is shutting down.
pub(super) fn unavailable<B>(message: &str) -> Response<GuardedBody<B>> {
    let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, codes::SERVER, message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

/// 504: the service did not answer `initialize` in time.
pub(super) fn not_initialized<B>() -> Response<GuardedBody<B>> {
    error(StatusCode::GATEWAY_TIMEOUT, codes::SERVER, "The server did not answer in time")
}

fn error<B>(status: StatusCode, code: i64, message: &str) -> Response<GuardedBody<B>> {
    let mut answer = Response::new(GuardedBody::text(error_body(None, code, message, None)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
