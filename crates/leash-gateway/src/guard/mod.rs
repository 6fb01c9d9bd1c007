//! The session guard: HTTP servers behind the gateway. The gateway passes requests and responses on unchanged. It
//! records each session that a server opens for a client before the client learns of it, and closes it when the client
//! is gone.
//!
//! The modules, in the order in which a request meets them: this file finds the kind of request; then comes
//! `initialize` (a session may begin), `in_session` (a session is used; `revive` if the server has lost it) or
//! `forward` (no session). `holding` is the state that leash keeps for a session, `stream` the response bodies, `sse`
//! the transport of 2024-11-05.

mod cancel;
mod forward;
mod holding;
mod in_session;
mod initialize;
mod listen;
mod opening;
mod revive;
mod sse;
mod stream;
#[cfg(test)]
mod tests;
mod unanswered;

use std::rc::Rc;

use hyper::{Method, StatusCode};
use serde_json::value::RawValue;

use crate::respond::{self, Answer};
use crate::{call::Call, keep_alive, state::gateway::Gateway, state::server::Server, state::session};
use leash_model::{limits, receipt::Reason};
use leash_protocol::envelope::{EnvelopeKind, Malformed, Message};
use leash_protocol::era::{self, Era};
use leash_protocol::headers;

pub(crate) use cancel::{Cancellation, abort_unanswered, cancellation, upstreams};
pub(crate) use holding::{note, resume, write};
pub(crate) use sse::answer_sse;
pub(crate) use stream::Boundary;

/// Answers a request for a server that speaks Streamable HTTP.
pub(crate) async fn answer(gateway: &Rc<Gateway>, server: &Rc<Server>, call: Call) -> Answer {
    match call.method {
        Method::POST => post(gateway, server, call).await,
        Method::GET => match headers::named_session(&call.headers) {
            None => forward::without_session(gateway, server, &call, RequestFacts::default()).await,
            Some(token) => match session::find(server, token, &call) {
                Ok(session) => in_session::answer(gateway, &session, &call, RequestFacts::default()).await,
                Err(unknown) => unknown,
            },
        },
        Method::DELETE => delete(gateway, server, &call).await,
        _ => respond::method_not_allowed("GET, POST, DELETE"),
    }
}

/// The facts about a request's body that the guard needs.
#[derive(Default)]
struct RequestFacts {
    /// The id, if the body is one request. leash uses it in the error responses that it writes itself.
    id: Option<Box<RawValue>>,
    /// The body has an `initialize` with this protocol version.
    initialize: Option<Option<String>>,
    /// The body has a `notifications/initialized`.
    initialized: bool,
    /// The body has a `subscriptions/listen`: its response stream has no end of its own.
    listens: bool,
    /// The body only has responses to leash's own pings.
    answers_ping: bool,
    /// The number of requests in the body.
    requests: u64,
    modern: bool,
}

impl RequestFacts {
    fn read(call: &Call) -> Result<RequestFacts, Answer> {
        let version = call.headers.get(headers::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
        let message = match Message::read(&call.body) {
            Ok(message) => Some(message),
            Err(error @ Malformed::Json(_)) => {
                let text = format!("Parse error: {error}");
                return Err(respond::error(StatusCode::BAD_REQUEST, None, error.code(), &text));
            }
            // leash forwards JSON that is not a known kind of message. The server decides about it.
            Err(_) => None,
        };
        let modern = era::classify(&call.method, version, message.as_ref()) == Era::Modern;
        let envelopes = message.as_ref().map(Message::envelopes).unwrap_or_default();
        let mut facts = RequestFacts { modern, ..RequestFacts::default() };
        facts.answers_ping = !envelopes.is_empty() && envelopes.iter().all(keep_alive::answers_ping);
        for envelope in envelopes {
            facts.requests += u64::from(envelope.kind == EnvelopeKind::Request);
            match (envelope.kind, envelope.method.as_deref()) {
                (EnvelopeKind::Request, Some("initialize")) => {
                    facts.initialize =
                        Some(envelope.string_param("protocolVersion").map(|version| version.into_owned()));
                }
                (EnvelopeKind::Request, Some("subscriptions/listen")) => facts.listens = true,
                (EnvelopeKind::Notification, Some("notifications/initialized")) => facts.initialized = true,
                _ => {}
            }
        }
        if let [envelope] = envelopes {
            facts.id = envelope.id.filter(|_| envelope.kind == EnvelopeKind::Request).map(ToOwned::to_owned);
        }
        Ok(facts)
    }
}

async fn post(gateway: &Rc<Gateway>, server: &Rc<Server>, call: Call) -> Answer {
    let facts = match RequestFacts::read(&call) {
        Ok(facts) => facts,
        Err(answer) => return answer,
    };
    match headers::named_session(&call.headers) {
        // A known session is used even if the request is of the modern era.
        Some(token) => match session::find(server, token, &call) {
            Ok(session) => in_session::answer(gateway, &session, &call, facts).await,
            // Modern servers ignore a stray session.
            Err(_) if facts.modern => forward::without_session(gateway, server, &call, facts).await,
            Err(unknown) => unknown,
        },
        None if facts.initialize.is_some() => Box::pin(initialize::answer(gateway, server, call, facts)).await,
        None => forward::without_session(gateway, server, &call, facts).await,
    }
}

/// Ends the client's session the same way as any other reason does, so the server gets one DELETE.
async fn delete(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Answer {
    let Some(token) = headers::named_session(&call.headers) else {
        return forward::without_session(gateway, server, call, RequestFacts::default()).await;
    };
    let session = match session::find(server, token, call) {
        Ok(session) => session,
        Err(unknown) => return unknown,
    };
    if let Some(upstream) = holding::of(&session) {
        upstream.remember(gateway, &session, call);
    }
    session.end(Reason::ClientDeleted);
    // The client does not wait for a server that does not respond: for the client, the session is over.
    let told = tokio::time::timeout(limits::CLIENT_DELETE, session.over()).await;
    let receipt = told.ok().and_then(|()| session.receipt());
    let status = receipt.and_then(|receipt| receipt.upstreams().next()).and_then(|end| end.status);
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).filter(|status| status.as_u16() < 500);
    respond::empty(status.unwrap_or(StatusCode::ACCEPTED))
}
