//! Errors of the control API, in the format of RFC 9457.

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::admission::AdmissionRefusal;
use super::super::respond::{self, Answer};
use crate::config::{RequestError, RequestMistake};

/// A problem, in the format of RFC 9457.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Problem {
    /// `urn:leash:problem:NAME`.
    #[serde(rename = "type")]
    kind: String,
    /// A title, the same for every problem of this type.
    title: String,
    /// The HTTP status.
    status: u16,
    /// The details of this occurrence.
    detail: String,
    /// The hint: how to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Of `invalid-request`: every mistake.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Mistake>,
    /// Of `server-failed`: which server.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Of `server-failed`: why it could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip)]
    #[schemars(skip)]
    allow: Option<String>,
}

/// One mistake of a request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Mistake {
    /// The position in the body: a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// Or the parameter of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
    /// The problem.
    what: String,
    /// The hint: how to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Mistake {
    /// Of a parameter of the query.
    pub(super) fn parameter(name: &str, what: String) -> Mistake {
        Mistake { pointer: None, parameter: Some(name.to_owned()), what, hint: None }
    }
}

impl From<RequestMistake> for Mistake {
    fn from(fault: RequestMistake) -> Mistake {
        Mistake { pointer: Some(fault.pointer), parameter: None, what: fault.what, hint: fault.hint }
    }
}

impl Problem {
    fn new(status: StatusCode, name: &str, title: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:leash:problem:{name}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            server: None,
            why: None,
            allow: None,
        }
    }

    fn hint(self, hint: impl Into<Option<String>>) -> Problem {
        Problem { hint: hint.into(), ..self }
    }

    /// 400: the body is not JSON, or has mistakes.
    pub(super) fn misread(misread: RequestError) -> Problem {
        match misread {
            RequestError::NotJson(fault) => {
                Problem::new(StatusCode::BAD_REQUEST, "invalid-json", "The body is not JSON", fault.what)
                    .hint(fault.hint)
            }
            RequestError::Faults(faults) => Problem::invalid(faults.into_iter().map(Mistake::from).collect()),
        }
    }

    /// 400: the request has these mistakes.
    pub(super) fn invalid(errors: Vec<Mistake>) -> Problem {
        let detail = match errors.as_slice() {
            [only] => only.what.clone(),
            many => format!("there are {} mistakes in the request; nothing was started", many.len()),
        };
        let status = StatusCode::BAD_REQUEST;
        Problem { errors, ..Problem::new(status, "invalid-request", "The request is not valid", detail) }
    }

    /// 400: one mistake in the body.
    pub(super) fn fault(pointer: &str, what: String, hint: &str) -> Problem {
        Problem::misread(RequestError::Faults(vec![RequestMistake {
            pointer: pointer.to_owned(),
            what,
            hint: Some(hint.to_owned()),
        }]))
    }

    /// 400: the body could not be read.
    pub(super) fn broken() -> Problem {
        let detail = "the body is incomplete, came too late, or is not UTF-8";
        Problem::new(StatusCode::BAD_REQUEST, "invalid-json", "The body is not JSON", detail)
    }

    /// The request may not be served.
    pub(in super::super) fn refused(refusal: &AdmissionRefusal) -> Problem {
        match refusal {
            AdmissionRefusal::Repeated(name) => Problem::repeated(name.as_str()),
            AdmissionRefusal::Host => Problem::host(),
            AdmissionRefusal::Origin => Problem::origin(),
            // A listener that serves all users, because it asks for a token, refuses by the token alone.
            AdmissionRefusal::Token | AdmissionRefusal::OtherUser(_) => Problem::unauthorized(),
        }
    }

    /// 400: a header on which admission depends came twice.
    fn repeated(name: &str) -> Problem {
        let detail = format!("the header `{name}` is given twice");
        Problem::new(StatusCode::BAD_REQUEST, "repeated-header", "A header is given twice", detail)
    }

    /// 401: the token is missing or wrong.
    fn unauthorized() -> Problem {
        let detail = "a bearer token is required";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "The token is missing or wrong", detail).hint(
            "send `Authorization: Bearer TOKEN`; it is in the variable that `--control-token-env` names".to_owned(),
        )
    }

    /// 403: the request comes from a page in a browser.
    fn origin() -> Problem {
        let detail = "requests from pages in browsers are not served";
        Problem::new(StatusCode::FORBIDDEN, "origin", "The request has an Origin", detail)
    }

    /// 403: the `Host` header names a host that is not allowed.
    fn host() -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "host", "The Host is not known", "this Host is not allowed")
            .hint("name it in `allowedHosts`".to_owned())
    }

    /// 404: no such session.
    pub(super) fn no_such_session(id: &str) -> Problem {
        let detail = format!("there is no session `{}`", id.escape_debug());
        let title = "There is no such session";
        Problem::new(StatusCode::NOT_FOUND, "no-such-session", title, detail)
            .hint("GET /v1/sessions lists all sessions".to_owned())
    }

    /// 404: no such path.
    pub(super) fn no_such_path(path: &str) -> Problem {
        let detail = format!("there is nothing at `{}`", path.escape_debug());
        Problem::new(StatusCode::NOT_FOUND, "no-such-path", "There is nothing at this path", detail)
            .hint("GET /v1/openapi.json lists all paths".to_owned())
    }

    /// 405: the path does not have this method.
    pub(super) fn method(allowed: String) -> Problem {
        let title = "The path has no such method";
        let detail = format!("only {allowed}");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Problem { allow: Some(allowed), ..Problem::new(status, "method-not-allowed", title, detail) }
    }

    /// 406: the response is an event stream, which the caller does not accept.
    pub(super) fn not_acceptable() -> Problem {
        let detail = "the answer is an event stream, and `Accept` does not allow one";
        Problem::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", "The answer would not be accepted", detail)
            .hint("send `Accept: text/event-stream`".to_owned())
    }

    /// 409: the session has ended or is ending.
    pub(super) fn ended(id: &str, why: &str) -> Problem {
        let detail = format!("session `{}` has ended or is being ended: {why}", id.escape_debug());
        Problem::new(StatusCode::CONFLICT, "ended", "The session has ended", detail)
    }

    /// 409: the session has no lease to renew.
    pub(super) fn no_lease(id: &str) -> Problem {
        let detail = format!("session `{}` has no ttl", id.escape_debug());
        Problem::new(StatusCode::CONFLICT, "no-lease", "There is nothing to renew", detail)
            .hint("send one: `{\"ttl\": \"30s\"}`".to_owned())
    }

    /// 413: the body is too large.
    pub(super) fn too_large(most: usize) -> Problem {
        let detail = format!("a request has at most {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The request is too large", detail)
    }

    /// 415: the `Content-Type` is not JSON.
    pub(super) fn not_json() -> Problem {
        let title = "The body must be JSON";
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            title,
            "the `Content-Type` is not JSON",
        )
        .hint("send `Content-Type: application/json`".to_owned())
    }

    /// 502: a server could not be started, and so none was.
    pub(super) fn server_failed(server: &str, why: String, hint: Option<String>) -> Problem {
        let detail = format!("server `{server}` could not be started: {why}");
        let problem = Problem::new(StatusCode::BAD_GATEWAY, "server-failed", "A server could not be started", detail);
        Problem { server: Some(server.to_owned()), why: Some(why), hint, ..problem }
    }

    /// 503: the daemon is shutting down.
    pub(super) fn draining() -> Problem {
        let detail = "the daemon is shutting down and accepts no new sessions";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "The daemon is shutting down", detail)
            .hint("start another one".to_owned())
    }

    /// 503: the limit of sessions is reached.
    pub(super) fn too_many() -> Problem {
        let detail = "the daemon has as many sessions as it may have";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-sessions", "There are too many sessions", detail)
            .hint("end some, or raise `maxSessions`".to_owned())
    }

    /// The problem as a response.
    pub(in super::super) fn answer(&self) -> Answer {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Every field of a problem can be serialized, so this cannot fail.
        let mut answer = respond::json(status, serde_json::to_vec(self).unwrap_or_default());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(Ok(allow)) = self.allow.as_deref().map(HeaderValue::from_str) {
            headers.insert(ALLOW, allow);
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}
