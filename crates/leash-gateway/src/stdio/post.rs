//! POST in a legacy session: one message of the client, or a batch.

use std::rc::Rc;

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use super::bridge::{Bridge, NotSent};
use super::switch::{CannotBegin, NewRequest, PostAnswer};
use super::{events::Events, output::MessageSink as _, reader::StreamBody};
use crate::respond::{self, Answer};
use crate::{call::Call, keep_alive::answers_ping, state::gateway::Gateway, state::session::ClientSession};
use leash_protocol::envelope::{Envelope, IdKey, Message, codes, error_body};
use leash_protocol::{era, headers};

/// The bridge to the server of an open session.
pub(super) fn bridge(session: &ClientSession) -> Result<Rc<Bridge>, Answer> {
    // Without one it is still opening, and no client has its id yet.
    session.holding_as().cloned().ok_or_else(respond::no_session)
}

/// Checks the version that a request names: it must be a known legacy version, or the one that this session agreed on.
pub(super) fn check_version(headers: &HeaderMap, bridge: &Bridge) -> Result<(), Answer> {
    let Some(version) = headers.get(headers::PROTOCOL_VERSION) else { return Ok(()) };
    let known = |version: &str| era::is_legacy_version(version) || version == bridge.version();
    if version.to_str().is_ok_and(known) { Ok(()) } else { Err(respond::unsupported_version()) }
}

/// Answers a POST.
pub(super) async fn answer(
    gateway: &Rc<Gateway>,
    session: &Rc<ClientSession>,
    call: &Call,
    message: &Message<'_>,
) -> Result<Answer, Answer> {
    let bridge = bridge(session)?;
    check_version(&call.headers, &bridge)?;
    // Any POST shows that the client is alive.
    let in_flight = session.began();
    bridge.pings.client_is_alive();
    for envelope in message.envelopes() {
        if envelope.method.as_deref() == Some("initialize") {
            return Err(respond::already_initialized(envelope.id));
        }
    }
    let (one, many);
    let (requests, batch) = match message {
        Message::One(envelope) => {
            one = NewRequest::of(envelope);
            (one.as_slice(), false)
        }
        Message::Batch(envelopes) => {
            many = envelopes.iter().filter_map(NewRequest::of).collect::<Vec<_>>();
            (&*many, true)
        }
    };
    session.called(requests.len() as u64);
    let Some(line) = without_pings(&bridge, &call.body, message) else {
        return Ok(respond::empty(StatusCode::ACCEPTED));
    };
    if requests.is_empty() {
        note_cancelled(gateway, &bridge, message);
        return tell(&bridge, line).await;
    }
    if bridge.child.input.room().await.is_err() {
        return Ok(server_gone(&bridge, message).await);
    }
    let reader = match bridge.ask(requests, line) {
        Ok(reader) => reader,
        Err(NotSent::NotNow(CannotBegin::Duplicate(key))) => return Err(respond::duplicate_id(key.as_str())),
        Err(NotSent::NotNow(CannotBegin::TooMany)) => {
            return Err(respond::unavailable("Service Unavailable: too many requests are in flight"));
        }
        Err(NotSent::Closed) => return Ok(server_gone(&bridge, message).await),
    };
    if batch {
        note_cancelled(gateway, &bridge, message);
    }
    Ok(match reader.first(batch, false).await {
        PostAnswer::Whole(body) => whole(&bridge, body),
        _ => {
            let first = reader.priming();
            Events::answer(StreamBody::new(reader, in_flight), first)
        }
    })
}

/// Notes the requests that the client cancels; they may be in the same batch.
fn note_cancelled(gateway: &Gateway, bridge: &Rc<Bridge>, message: &Message<'_>) {
    for key in message.envelopes().iter().filter_map(|envelope| IdKey::of(envelope.cancelled()?)) {
        bridge.cancelled(key, &gateway.tasks);
    }
}

/// The part of a body that goes to the server: without answers to the pings that leash itself sent. `None` if nothing
/// else is in it.
fn without_pings(bridge: &Bridge, body: &Bytes, message: &Message<'_>) -> Option<Bytes> {
    if !message.envelopes().iter().any(answers_ping) {
        return Some(body.clone());
    }
    bridge.pings.answered();
    let Message::Batch(envelopes) = message else { return None };
    let elements: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    let others = elements.iter().zip(envelopes).filter(|(_, envelope)| !answers_ping(envelope));
    let others: Vec<&str> = others.map(|(element, _)| element.get()).collect();
    (!others.is_empty()).then(|| format!("[{}]", others.join(",")).into())
}

async fn tell(bridge: &Rc<Bridge>, line: Bytes) -> Result<Answer, Answer> {
    match bridge.tell(line).await {
        Ok(()) => Ok(respond::empty(StatusCode::ACCEPTED)),
        Err(_) => Err(respond::no_session()),
    }
}

/// The answer in one piece.
pub(super) fn whole(bridge: &Bridge, body: Bytes) -> Answer {
    bridge.sent(body.len());
    bridge.drained();
    respond::json(StatusCode::OK, bridge.account().hold(body))
}

/// The response if the server exited before it got the request: the same as if it had exited just after.
async fn server_gone(bridge: &Bridge, message: &Message<'_>) -> Answer {
    let exited = bridge.exit_error().await;
    let error = |envelope: &Envelope<'_>| error_body(envelope.id, codes::SERVER, &exited.message, exited.data.clone());
    let bodies: Vec<_> =
        message.envelopes().iter().filter(|envelope| NewRequest::of(envelope).is_some()).map(error).collect();
    match (message, bodies.first()) {
        (Message::One(_), Some(only)) => respond::json(StatusCode::OK, only.clone()),
        _ => respond::json(StatusCode::OK, [b"[".as_slice(), &bodies.join(&b","[..]), b"]"].concat()),
    }
}
