//! Builds the requests for the upstream and the responses for the client.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, http::response::Parts};
use serde_json::value::RawValue;

use super::RequestFacts;
use super::holding::{self, UpstreamHolding, UpstreamParts};
use super::stream::{ForwardedBody, ResponseLimit};
use crate::config::{ServerSettings, ServerTarget};
use crate::respond::{self, Answer};
use crate::{call::Call, state::gateway::Gateway, state::server::Server, state::session::ClientSession};
use leash_model::{limits, receipt::Reason};
use leash_protocol::{envelope::codes, headers};
use leash_upstream::{address::UpstreamServer, body::Body, client::UpstreamError};

/// Headers that leash does not forward: it sets them itself, or they do not concern the upstream.
const NOT_FORWARDED: [HeaderName; 6] = [
    header::HOST,
    // The gateway has checked it. To the upstream it would be a foreign origin.
    header::ORIGIN,
    header::CONTENT_LENGTH,
    header::EXPECT,
    // leash reads the bodies that it passes on.
    header::ACCEPT_ENCODING,
    headers::SESSION_ID,
];

/// Tells proxies between leash and the client not to buffer events.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Returns the server's address and headers. Panics for a server that is a command.
pub(super) fn target(settings: &ServerSettings) -> &UpstreamServer {
    match &settings.target {
        ServerTarget::Url(upstream) => upstream,
        ServerTarget::Command(_) => unreachable!("the guard is for servers with an address"),
    }
}

/// Sets the configured headers.
pub(super) fn configure(headers: &mut HeaderMap, settings: &ServerSettings) {
    for (name, value) in &target(settings).headers {
        headers.insert(name.clone(), value.clone());
    }
}

/// Builds the request for the upstream.
pub(super) fn request(uri: Uri, settings: &ServerSettings, call: &Call, id: Option<&str>) -> Request<Full<Bytes>> {
    let mut headers = call.headers.clone();
    headers::strip_hop_by_hop(&mut headers);
    for name in &NOT_FORWARDED {
        headers.remove(name);
    }
    let own: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("leash-")).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    configure(&mut headers, settings);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(Ok(id)) = id.map(HeaderValue::from_str) {
        headers.insert(headers::SESSION_ID, id);
    }
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

/// Sends a request to the server.
pub(super) async fn send(
    gateway: &Gateway,
    server: &Server,
    call: &Call,
    id: Option<&str>,
) -> Result<Response<Incoming>, UpstreamError> {
    let settings = server.settings();
    let uri = target(&settings).url.clone();
    gateway.client.send_to(uri, |uri| request(uri, &settings, call, id)).await
}

/// Builds the response for the client: status, headers and body as they came.
pub(super) fn pass(gateway: &Gateway, server: &Server, answer: Response<Incoming>, until: ResponseLimit) -> Answer {
    let (head, body) = answer.into_parts();
    let passing = ForwardedBody::new(body, gateway.metrics.of(&server.bucket), until);
    Response::from_parts(cleaned(head), Body::stream(passing))
}

/// Like `pass`, but waits for a short body. It goes out in one piece with the head; if it breaks off, the caller gets
/// an error.
pub(super) async fn pass_whole(
    gateway: &Gateway,
    server: &Server,
    answer: Response<Incoming>,
    until: ResponseLimit,
) -> Result<Answer, UpstreamError> {
    if answer.body().size_hint().exact().is_none_or(|length| length > limits::SHORT_ANSWER) {
        return Ok(pass(gateway, server, answer, until));
    }
    let (head, body) = answer.into_parts();
    let whole = body.collect().await.map_err(|error| UpstreamError::Broken(error.to_string()))?.to_bytes();
    gateway.metrics.of(&server.bucket).sent(whole.len());
    Ok(Response::from_parts(cleaned(head), Body::Whole(whole)))
}

/// Removes the headers about the connection to the upstream from a response's head.
pub(super) fn cleaned(mut head: Parts) -> Parts {
    headers::strip_hop_by_hop(&mut head.headers);
    if headers::is_event_stream(&head.headers) {
        let (name, value) = NO_BUFFERING;
        head.headers.insert(name, value);
    }
    head.version = hyper::Version::HTTP_11;
    head.extensions.clear();
    head
}

/// Reads a short response to its end. `None` if it is too long or breaks off.
pub(super) async fn read(answer: Response<Incoming>) -> Option<Response<Bytes>> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, limits::DELETE_BODY).collect().await.ok()?.to_bytes();
    Some(Response::from_parts(cleaned(head), body))
}

/// Builds the error response for an upstream that failed. It names the server and not its URL, which clients of the
/// gateway need not know.
pub(super) fn failed(server: &Server, error: &UpstreamError, id: Option<&RawValue>) -> Answer {
    let (status, name) = match error {
        UpstreamError::Timeout => (StatusCode::GATEWAY_TIMEOUT, "Gateway Timeout"),
        _ => (StatusCode::BAD_GATEWAY, "Bad Gateway"),
    };
    let text = format!("{name}: {}", error.explain(&format!("`{}`", server.name)));
    respond::error(status, id, codes::SERVER, &text)
}

/// Answers a request without a session. When the client leaves, its request to the upstream is dropped too.
pub(super) async fn without_session(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    call: &Call,
    facts: RequestFacts,
) -> Answer {
    // leash never forwards a session id that it does not know or that belongs to another client: a modern server would
    // ignore the id, but a legacy server might use that session.
    let answer = match send(gateway, server, call, None).await {
        Ok(answer) => answer,
        Err(error) => return failed(server, &error, facts.id.as_deref()),
    };
    if let Some(id) = headers::opened_session(answer.headers())
        && let Err(refused) = adopt(gateway, server, call, id)
    {
        return refused;
    }
    // A listening request has no end of its own and would delay the gateway's shutdown.
    let listens = facts.listens || call.method == Method::GET;
    let until = if listens { ResponseLimit::Stopping(gateway.client.deadline.clone()) } else { ResponseLimit::End };
    pass_whole(gateway, server, answer, until).await.unwrap_or_else(|error| failed(server, &error, facts.id.as_deref()))
}

/// Guards a session that the server opened without `initialize`, for instance in its response to a probe.
pub(super) fn adopt(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call, id: &str) -> Result<(), Answer> {
    if server.session(id).is_some() {
        return Ok(());
    }
    let version = call.headers.get(headers::PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let upstream = UpstreamHolding::streamable(server, &call.headers, UpstreamParts { id, version, revival: None });
    let session = match ClientSession::open(gateway, server, call) {
        Ok(session) => session,
        Err(refused) => {
            upstream.refuse(gateway, server, Reason::NotInitialized);
            return Err(refused);
        }
    };
    holding::note(gateway, gateway.book.open(&upstream.entry(&session)));
    session.known_client.list(&gateway.book, &session.id);
    let held = session.hold(upstream);
    gateway.keeper_link.prepare(gateway);
    gateway.keeper_link.hold(&session);
    if held {
        session.rename(id);
        session.opened();
    }
    Ok(())
}
