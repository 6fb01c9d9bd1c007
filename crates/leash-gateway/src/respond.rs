//! The responses that leash itself writes. `docs/reference/http-status.md` lists them; change both together.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::{Value, value::RawValue};

use super::admission::AdmissionRefusal;
use leash_model::start_failure::{CommandOrigin, StartFailure};
use leash_protocol::envelope::{Malformed, codes, error_body};
use leash_protocol::era;
use leash_upstream::body::Body;

/// A response to a client.
pub(crate) type Answer = Response<Body>;

/// Builds a JSON-RPC error with an HTTP status.
pub(crate) fn error(status: StatusCode, id: Option<&RawValue>, code: i64, message: &str) -> Answer {
    json(status, error_body(id, code, message, None))
}

/// Builds a JSON response with an HTTP status.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::Whole(body.into()));
    *answer.status_mut() = status;
    with(answer, CONTENT_TYPE, "application/json")
}

/// Sets a header of a response.
fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// Builds a response with a status and no body.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// Builds a plain text response, for people and probes.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    with(json(status, text), CONTENT_TYPE, "text/plain; charset=utf-8")
}

/// 404: the session is over or never existed. The client must begin a new one.
pub(crate) fn no_session() -> Answer {
    // The TypeScript SDK's server uses -32001 here.
    error(StatusCode::NOT_FOUND, None, -32001, "Session not found")
}

/// 400: a request that needs a session came without one.
pub(crate) fn session_missing() -> Answer {
    error(StatusCode::BAD_REQUEST, None, codes::SERVER, "Bad Request: Mcp-Session-Id header is required")
}

/// 404: there is nothing at this path, with the reason.
pub(crate) fn no_such_path(why: &str) -> Answer {
    error(StatusCode::NOT_FOUND, None, codes::SERVER, &format!("Not Found: {why}"))
}

/// 405, with the allowed methods.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Answer {
    with(error(StatusCode::METHOD_NOT_ALLOWED, None, codes::SERVER, "Method not allowed"), ALLOW, allowed)
}

/// 503: the session limit is reached, or the gateway is shutting down.
pub(crate) fn unavailable(message: &str) -> Answer {
    with(error(StatusCode::SERVICE_UNAVAILABLE, None, codes::SERVER, message), RETRY_AFTER, "5")
}

/// 503: the gateway is shutting down, so the request in flight gets no other answer.
pub(crate) fn shutting_down(id: Option<&RawValue>) -> Answer {
    let text = "Service Unavailable: the gateway is shutting down";
    error(StatusCode::SERVICE_UNAVAILABLE, id, codes::SERVER, text)
}

/// 400, 401 or 403: the request may not be served.
pub(crate) fn refused(refusal: &AdmissionRefusal) -> Answer {
    let text = match refusal {
        AdmissionRefusal::Token => {
            let text = "Unauthorized: a bearer token is required";
            return with(error(StatusCode::UNAUTHORIZED, None, codes::SERVER, text), WWW_AUTHENTICATE, "Bearer");
        }
        AdmissionRefusal::Repeated(name) => {
            let text = format!("Bad Request: the header `{name}` is given twice");
            return error(StatusCode::BAD_REQUEST, None, codes::SERVER, &text);
        }
        AdmissionRefusal::Host(host) => {
            format!("Forbidden: the Host `{host}` is not allowed; add it to `allowedHosts` of the gateway's `leash`")
        }
        AdmissionRefusal::Origin(origin) => {
            format!(
                "Forbidden: the Origin `{origin}` is not allowed; add it to `allowedOrigins` of the gateway's `leash`"
            )
        }
        AdmissionRefusal::OtherUser(uid) => {
            let from = uid.map_or_else(|| "a user that cannot be found".to_owned(), |uid| format!("uid {uid}"));
            format!(
                "Forbidden: the request comes from {from}, not from the gateway's user; set a token or `localUsers`"
            )
        }
    };
    error(StatusCode::FORBIDDEN, None, codes::SERVER, &text)
}

/// 406: the client does not accept the content type of the response.
pub(crate) fn not_acceptable(needed: &str) -> Answer {
    let text = format!("Not Acceptable: Client must accept {needed}");
    error(StatusCode::NOT_ACCEPTABLE, None, codes::SERVER, &text)
}

/// 400: the body is not a message.
pub(crate) fn malformed(fault: &Malformed) -> Answer {
    let what = if fault.code() == codes::PARSE { "Parse error" } else { "Invalid Request" };
    error(StatusCode::BAD_REQUEST, None, fault.code(), &format!("{what}: {fault}"))
}

/// 400: `initialize` in a session that is already initialized.
pub(crate) fn already_initialized(id: Option<&RawValue>) -> Answer {
    error(StatusCode::BAD_REQUEST, id, codes::INVALID_REQUEST, "Invalid Request: Server already initialized")
}

/// 400: the id of a request that is still in flight is used again.
pub(crate) fn duplicate_id(id: &str) -> Answer {
    let text = format!("Invalid Request: a request with the id {id} is in flight");
    error(StatusCode::BAD_REQUEST, None, codes::INVALID_REQUEST, &text)
}

/// 400: an unknown protocol version.
pub(crate) fn unsupported_version() -> Answer {
    let text =
        format!("Bad Request: Unsupported protocol version (supported versions: {})", era::LEGACY_VERSIONS.join(", "));
    error(StatusCode::BAD_REQUEST, None, codes::SERVER, &text)
}

/// 400: a modern request for a server that only supports the handshake. The error is not a modern one, so that clients
/// fall back to `initialize`.
pub(crate) fn not_initialized(id: Option<&RawValue>) -> Answer {
    error(StatusCode::BAD_REQUEST, id, codes::SERVER, "Bad Request: Server not initialized")
}

/// 400: an event id that leash never sent, or whose stream it no longer keeps.
pub(crate) fn unknown_event() -> Answer {
    error(StatusCode::BAD_REQUEST, None, codes::SERVER, "Bad Request: unknown Last-Event-ID")
}

/// 409: the session already has a listener.
pub(crate) fn second_listener() -> Answer {
    error(StatusCode::CONFLICT, None, codes::SERVER, "Conflict: Only one SSE stream is allowed per session")
}

/// 502: the server cannot be started.
pub(crate) fn start_failed(id: Option<&RawValue>, failure: &StartFailure) -> Answer {
    let text = format!("Bad Gateway: {}; {}", failure.line(), failure.hint(CommandOrigin::File));
    error(StatusCode::BAD_GATEWAY, id, codes::SERVER, &text)
}

/// 502: the server exited before it responded.
pub(crate) fn exited(id: Option<&RawValue>, message: &str, data: Option<Value>) -> Answer {
    let message = format!("Bad Gateway: {message}");
    json(StatusCode::BAD_GATEWAY, error_body(id, codes::SERVER, &message, data))
}

/// 400: JSON-RPC that is not allowed here.
pub(crate) fn invalid_request(id: Option<&RawValue>, what: &str) -> Answer {
    error(StatusCode::BAD_REQUEST, id, codes::INVALID_REQUEST, &format!("Invalid Request: {what}"))
}

/// 400: a modern request without the mandatory `_meta` fields.
pub(crate) fn malformed_meta(id: Option<&RawValue>) -> Answer {
    let text = "Invalid params: `_meta` must have a protocolVersion and clientCapabilities";
    error(StatusCode::BAD_REQUEST, id, codes::INVALID_PARAMS, text)
}

/// 400: a header of a modern request is missing or does not match the body.
pub(crate) fn header_mismatch(id: Option<&RawValue>, why: &str) -> Answer {
    error(StatusCode::BAD_REQUEST, id, codes::HEADER_MISMATCH, &format!("Header mismatch: {why}"))
}
