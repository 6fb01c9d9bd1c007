//! Requests as the upstream gets them, and answers as the client does.

use std::rc::Rc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde_json::value::RawValue;

use super::Asked;
use super::holding;
use super::holding::{Found, Upstream};
use super::stream::{Passing, Until};
use crate::config;
use crate::config::Target;
use crate::front::Call;
use crate::gateway::Gateway;
use crate::respond;
use crate::respond::Answer;
use crate::server::Server;
use crate::session::{Holding, Session};
use leash_model::limits;
use leash_model::receipt::Reason;
use leash_protocol::envelope::codes;
use leash_protocol::headers;
use leash_upstream::body::Body;
use leash_upstream::client::UpstreamError;

/// What is set anew for the upstream, or is none of its business.
const NOT_FORWARDED: [HeaderName; 6] = [
    header::HOST,
    // Checked by the gateway; the upstream would see a stranger's.
    header::ORIGIN,
    header::CONTENT_LENGTH,
    header::EXPECT,
    // leash reads what it passes on.
    header::ACCEPT_ENCODING,
    headers::SESSION_ID,
];

/// Tells proxies on the way to the client to pass events on at once.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The server's address and headers. Only servers with an address come here.
pub(super) fn target(settings: &config::Server) -> &leash_upstream::address::Upstream {
    match &settings.target {
        Target::Url(upstream) => upstream,
        Target::Command(_) => unreachable!("the guard is for servers with an address"),
    }
}

/// Sets the configured headers.
pub(super) fn configure(headers: &mut HeaderMap, settings: &config::Server) {
    for (name, value) in &target(settings).headers {
        headers.insert(name.clone(), value.clone());
    }
}

/// The request for the upstream.
pub(super) fn request(
    uri: Uri,
    settings: &config::Server,
    call: &Call,
    id: Option<&str>,
) -> Request<Full<bytes::Bytes>> {
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

/// Sends a call on.
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

/// The answer for the client: status, headers and body as they came.
pub(super) fn pass(gateway: &Gateway, server: &Server, answer: Response<Incoming>, until: Until) -> Answer {
    let (head, body) = answer.into_parts();
    let passing = Passing::new(body, gateway.metrics.of(&server.bucket), until);
    Response::from_parts(cleaned(head), Body::stream(passing))
}

/// The same, but a short body is awaited: it goes out in one piece with the head, and if it breaks off the client is told so.
pub(super) async fn pass_whole(
    gateway: &Gateway,
    server: &Server,
    answer: Response<Incoming>,
    until: Until,
) -> Result<Answer, UpstreamError> {
    if answer.body().size_hint().exact().is_none_or(|length| length > limits::SHORT_ANSWER) {
        return Ok(pass(gateway, server, answer, until));
    }
    let (head, body) = answer.into_parts();
    let whole = body.collect().await.map_err(|error| UpstreamError::Broken(error.to_string()))?.to_bytes();
    gateway.metrics.of(&server.bucket).sent(whole.len());
    Ok(Response::from_parts(cleaned(head), Body::Whole(whole)))
}

/// The head of an answer without what concerned the connection to the upstream.
pub(super) fn cleaned(mut head: Parts) -> Parts {
    headers::strip_hop_by_hop(&mut head.headers);
    if is_event_stream(&head.headers) {
        let (name, value) = NO_BUFFERING;
        head.headers.insert(name, value);
    }
    head.version = hyper::Version::HTTP_11;
    head.extensions.clear();
    head
}

pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

/// An answer that is short, read to its end; `None` if it is not short, or breaks off.
pub(super) async fn read(answer: Response<Incoming>) -> Option<Response<bytes::Bytes>> {
    let (mut head, body) = answer.into_parts();
    let body = Limited::new(body, limits::DELETE_BODY).collect().await.ok()?.to_bytes();
    head = cleaned(head);
    Some(Response::from_parts(head, body))
}

/// The upstream can't be reached.
pub(super) fn failed(error: &UpstreamError, id: Option<&RawValue>) -> Answer {
    let (status, name) = match error {
        UpstreamError::Timeout => (StatusCode::GATEWAY_TIMEOUT, "Gateway Timeout"),
        _ => (StatusCode::BAD_GATEWAY, "Bad Gateway"),
    };
    let text = match error {
        UpstreamError::Unusable { .. } => format!("{name}: {error}"),
        _ => format!("{name}: the server cannot be reached: {error}"),
    };
    respond::error(status, id, codes::SERVER, &text)
}

/// A request that names no session. Whoever asks may leave at any time: what is under way upstream is dropped with it.
pub(super) async fn without_session(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call, asked: Asked) -> Answer {
    // An id that leash does not know, or that is another client's, is never passed on: a modern server would ignore it, and a
    // legacy one might obey it.
    let answer = match send(gateway, server, call, None).await {
        Ok(answer) => answer,
        Err(error) => return failed(&error, asked.id.as_deref()),
    };
    if let Some(id) = session_id(&answer)
        && let Err(refused) = adopt(gateway, server, call, &id)
    {
        return refused;
    }
    // A listener would hold up the gateway's end for as long as it likes.
    let listens = asked.listens || call.method == Method::GET;
    let until = if listens { Until::Stopping(gateway.client.hurry.clone()) } else { Until::End };
    pass_whole(gateway, server, answer, until).await.unwrap_or_else(|error| failed(&error, asked.id.as_deref()))
}

/// The session that an answer names.
pub(super) fn session_id<B>(answer: &Response<B>) -> Option<String> {
    let id = answer.headers().get(headers::SESSION_ID)?.to_str().ok()?;
    headers::valid_session_id(id).then(|| id.to_owned())
}

/// A server opened a session that nobody asked for, with the answer to a probe for instance. It is guarded as any other.
pub(super) fn adopt(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call, id: &str) -> Result<(), Answer> {
    if server.session(id).is_some() {
        return Ok(());
    }
    let version = call.headers.get(headers::PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let upstream = Upstream::streamable(server, &call.headers, Found { id, version, revival: None });
    let session = match Session::open(gateway, server, call) {
        Ok(session) => session,
        Err(refused) => {
            upstream.refuse(gateway, server, Reason::NotInitialized);
            return Err(refused);
        }
    };
    holding::note(gateway, gateway.book.open(&upstream.entry(&session)));
    let held = session.hold(Holding::Upstream(Box::new(upstream)));
    gateway.keeping.prepare(gateway);
    gateway.keeping.hold(&session);
    if held {
        session.rename(id);
        session.opened();
    }
    Ok(())
}
