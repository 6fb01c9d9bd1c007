//! Errors of the control API, in the format of RFC 9457.

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::Serialize;

use crate::admission::AdmissionRefusal;
use crate::config::{RequestError, RequestMistake};
use crate::respond::{self, Answer};
use leash_model::start_failure::{CommandOrigin, StartFailure};

/// The type of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ProblemType")]
pub(super) enum Kind {
    #[serde(rename = "urn:leash:problem:invalid-json")]
    InvalidJson,
    #[serde(rename = "urn:leash:problem:invalid-request")]
    InvalidRequest,
    #[serde(rename = "urn:leash:problem:repeated-header")]
    RepeatedHeader,
    #[serde(rename = "urn:leash:problem:unauthorized")]
    Unauthorized,
    #[serde(rename = "urn:leash:problem:origin")]
    Origin,
    #[serde(rename = "urn:leash:problem:host")]
    Host,
    #[serde(rename = "urn:leash:problem:no-such-session")]
    NoSuchSession,
    #[serde(rename = "urn:leash:problem:no-such-path")]
    NoSuchPath,
    #[serde(rename = "urn:leash:problem:no-page")]
    NoPage,
    #[serde(rename = "urn:leash:problem:method-not-allowed")]
    MethodNotAllowed,
    #[serde(rename = "urn:leash:problem:not-acceptable")]
    NotAcceptable,
    #[serde(rename = "urn:leash:problem:ended")]
    Ended,
    #[serde(rename = "urn:leash:problem:no-lease")]
    NoLease,
    #[serde(rename = "urn:leash:problem:too-large")]
    TooLarge,
    #[serde(rename = "urn:leash:problem:unsupported-media-type")]
    UnsupportedMediaType,
    #[serde(rename = "urn:leash:problem:server-failed")]
    ServerFailed,
    #[serde(rename = "urn:leash:problem:draining")]
    Draining,
    #[serde(rename = "urn:leash:problem:too-many-sessions")]
    TooManySessions,
}

impl Kind {
    /// The last word of its URN.
    pub(super) fn name(self) -> String {
        let urn = serde_json::to_value(self).unwrap_or_default();
        urn.as_str().and_then(|urn| urn.rsplit(':').next()).unwrap_or_default().to_owned()
    }

    /// Its status and its title.
    pub(super) fn facts(self) -> (StatusCode, &'static str) {
        match self {
            Kind::InvalidJson => (StatusCode::BAD_REQUEST, "The body is not JSON"),
            Kind::InvalidRequest => (StatusCode::BAD_REQUEST, "The request is not valid"),
            Kind::RepeatedHeader => (StatusCode::BAD_REQUEST, "A header is given twice"),
            Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "The token is missing or wrong"),
            Kind::Origin => (StatusCode::FORBIDDEN, "The request has an Origin"),
            Kind::Host => (StatusCode::FORBIDDEN, "The Host is not known"),
            Kind::NoSuchSession => (StatusCode::NOT_FOUND, "There is no such session"),
            Kind::NoSuchPath => (StatusCode::NOT_FOUND, "There is nothing at this path"),
            Kind::NoPage => (StatusCode::NOT_FOUND, "This gateway has no page"),
            Kind::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "The path has no such method"),
            Kind::NotAcceptable => (StatusCode::NOT_ACCEPTABLE, "The answer would not be accepted"),
            Kind::Ended => (StatusCode::CONFLICT, "The session has ended"),
            Kind::NoLease => (StatusCode::CONFLICT, "There is nothing to renew"),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request is too large"),
            Kind::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body must be JSON"),
            Kind::ServerFailed => (StatusCode::BAD_GATEWAY, "A server could not be started"),
            Kind::Draining => (StatusCode::SERVICE_UNAVAILABLE, "The daemon is shutting down"),
            Kind::TooManySessions => (StatusCode::SERVICE_UNAVAILABLE, "There are too many sessions"),
        }
    }
}

/// A problem, in the format of RFC 9457.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Problem {
    /// `urn:leash:problem:NAME`.
    #[serde(rename = "type")]
    kind: Kind,
    /// A title, the same for every problem of this type.
    title: &'static str,
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
    /// Of `server-failed`: the same as a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Box<StartFailure>>,
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
    fn new(kind: Kind, detail: impl Into<String>) -> Problem {
        let (status, title) = kind.facts();
        Problem {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            server: None,
            why: None,
            failure: None,
            allow: None,
        }
    }

    fn hint(self, hint: impl Into<Option<String>>) -> Problem {
        Problem { hint: hint.into(), ..self }
    }

    /// 400: the body is not JSON, or has mistakes.
    pub(super) fn misread(misread: RequestError) -> Problem {
        match misread {
            RequestError::NotJson(fault) => Problem::new(Kind::InvalidJson, fault.what).hint(fault.hint),
            RequestError::Faults(faults) => Problem::invalid(faults.into_iter().map(Mistake::from).collect()),
        }
    }

    /// 400: the request has these mistakes.
    pub(super) fn invalid(errors: Vec<Mistake>) -> Problem {
        let detail = match errors.as_slice() {
            [only] => only.what.clone(),
            many => format!("there are {} mistakes in the request; nothing was started", many.len()),
        };
        Problem { errors, ..Problem::new(Kind::InvalidRequest, detail) }
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
        Problem::new(Kind::InvalidJson, "the body is incomplete, came too late, or is not UTF-8")
    }

    /// 400, 401 or 403: the request may not be served.
    pub(in super::super) fn refused(refusal: &AdmissionRefusal) -> Problem {
        match refusal {
            AdmissionRefusal::Repeated(name) => {
                Problem::new(Kind::RepeatedHeader, format!("the header `{name}` is given twice"))
            }
            AdmissionRefusal::Host(host) => Problem::new(Kind::Host, format!("the Host `{host}` is not allowed"))
                .hint("add it to `allowedHosts` of the gateway's `leash`".to_owned()),
            AdmissionRefusal::Origin(_) => Problem::new(Kind::Origin, "requests from pages in browsers are not served"),
            // A listener that serves all users, because it asks for a token, refuses by the token alone.
            AdmissionRefusal::Token | AdmissionRefusal::OtherUser(_) => {
                let hint = "send `Authorization: Bearer TOKEN`; it is in the variable that `--control-token-env` names";
                Problem::new(Kind::Unauthorized, "a bearer token is required").hint(hint.to_owned())
            }
        }
    }

    /// 404: no such session.
    pub(super) fn no_such_session(id: &str) -> Problem {
        let detail = format!("there is no session `{}`", id.escape_debug());
        Problem::new(Kind::NoSuchSession, detail).hint("GET /v1/sessions lists all sessions".to_owned())
    }

    /// 404: no such path.
    pub(super) fn no_such_path(path: &str) -> Problem {
        let detail = format!("there is nothing at `{}`", path.escape_debug());
        Problem::new(Kind::NoSuchPath, detail).hint("GET /v1/openapi.json lists all paths".to_owned())
    }

    /// 404: the page is switched off.
    pub(super) fn no_page() -> Problem {
        let detail = "the page of this gateway is switched off";
        Problem::new(Kind::NoPage, detail).hint("start it without `--no-page` and without `\"page\": false`".to_owned())
    }

    /// 405: the path does not have this method.
    pub(super) fn method(allowed: String) -> Problem {
        let detail = format!("only {allowed}");
        Problem { allow: Some(allowed), ..Problem::new(Kind::MethodNotAllowed, detail) }
    }

    /// 406: the response is an event stream, which the caller does not accept.
    pub(super) fn not_acceptable() -> Problem {
        let detail = "the answer is an event stream, and `Accept` does not allow one";
        Problem::new(Kind::NotAcceptable, detail).hint("send `Accept: text/event-stream`".to_owned())
    }

    /// 409: the session has ended or is ending.
    pub(super) fn ended(id: &str, why: &str) -> Problem {
        Problem::new(Kind::Ended, format!("session `{}` has ended or is being ended: {why}", id.escape_debug()))
    }

    /// 409: the session has no lease to renew.
    pub(super) fn no_lease(id: &str) -> Problem {
        let detail = format!("session `{}` has no ttl", id.escape_debug());
        Problem::new(Kind::NoLease, detail).hint("send one: `{\"ttl\": \"30s\"}`".to_owned())
    }

    /// 413: the body is too large.
    pub(super) fn too_large(most: usize) -> Problem {
        Problem::new(Kind::TooLarge, format!("a request has at most {most} bytes"))
    }

    /// 415: the `Content-Type` is not JSON.
    pub(super) fn not_json() -> Problem {
        Problem::new(Kind::UnsupportedMediaType, "the `Content-Type` is not JSON")
            .hint("send `Content-Type: application/json`".to_owned())
    }

    /// 502: a server could not be started, and so none was.
    pub(super) fn server_failed(server: &str, failure: StartFailure) -> Problem {
        let why = failure.line();
        let detail = format!("server `{server}` could not be started: {why}");
        let hint = Some(failure.hint(CommandOrigin::Request));
        let problem = Problem::new(Kind::ServerFailed, detail);
        Problem { server: Some(server.to_owned()), why: Some(why), failure: Some(Box::new(failure)), hint, ..problem }
    }

    /// 503: the daemon is shutting down.
    pub(super) fn draining() -> Problem {
        let detail = "the daemon is shutting down and accepts no new sessions";
        Problem::new(Kind::Draining, detail).hint("start another one".to_owned())
    }

    /// 503: the limit of sessions is reached.
    pub(super) fn too_many() -> Problem {
        let detail = "the daemon has as many sessions as it may have";
        Problem::new(Kind::TooManySessions, detail).hint("end some, or raise `maxSessions`".to_owned())
    }

    /// The problem as a response.
    pub(in super::super) fn answer(&self) -> Answer {
        let (status, _) = self.kind.facts();
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
