//! POST of `initialize`: a session begins, with a tree of its own.

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use hyper::{StatusCode, header::HeaderValue};
use tokio::sync::oneshot;

use super::switch::{NewRequest, PostAnswer};
use super::{bridge::Bridge, child, events::Events, modern, post, reader::StreamBody};
use crate::respond::{self, Answer};
use crate::{call::Call, state::gateway::Gateway, state::server::Server, state::session::ClientSession};
use leash_model::{receipt::Reason, start_failure::StartFailure};
use leash_protocol::envelope::{Envelope, IdKey};
use leash_protocol::headers;

/// A session whose id its client does not have yet. Dropped before the client gets the id, it ends the session.
struct UndeliveredSession {
    session: Rc<ClientSession>,
    known: Cell<bool>,
}

impl Drop for UndeliveredSession {
    fn drop(&mut self) {
        if !self.known.get() {
            self.session.end(Reason::ClientLeft);
        }
    }
}

/// Answers an `initialize`.
pub(super) async fn answer(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    call: &Call,
    envelope: &Envelope<'_>,
) -> Result<Answer, Answer> {
    let Some(request) = NewRequest::of(envelope) else { return Err(respond::session_missing()) };
    let session = ClientSession::open(gateway, server, call)?;
    let opening = UndeliveredSession { session: Rc::clone(&session), known: Cell::new(false) };
    let in_flight = session.began();
    let bridge = match start(gateway, &session, request.key.clone()).await {
        Ok(bridge) => bridge,
        Err(failure) => {
            session.end(Reason::NotInitialized);
            return Err(respond::start_failed(envelope.id, &failure));
        }
    };
    let Ok(reader) = bridge.ask(&[request], call.body.clone()) else {
        let error = bridge.exit_error().await;
        return Err(respond::exited(envelope.id, &error.message, error.data));
    };
    // No deadline here: the session has its own, and when it ends it answers the request.
    let mut answer = match reader.first(false, true).await {
        PostAnswer::Whole(body) if session.is_live() => post::whole(&bridge, body),
        // The server refused, or leash answered in its place; either way no session was opened.
        PostAnswer::Whole(body) => return Ok(failed(&bridge, envelope, body)),
        _ => Events::answer(StreamBody::new(reader, in_flight), None),
    };
    if !session.identified().await {
        return Err(respond::no_session());
    }
    opening.known.set(true);
    let token = HeaderValue::from_str(&session.token()).map_err(|_| respond::no_session())?;
    answer.headers_mut().insert(headers::SESSION_ID, token);
    Ok(answer)
}

/// Starts the server. The start continues if the client disconnects meanwhile, so that the started tree is also ended.
async fn start(gateway: &Rc<Gateway>, session: &Rc<ClientSession>, opening: IdKey) -> Result<Rc<Bridge>, StartFailure> {
    let (done, started) = oneshot::channel();
    let (gateway, starting) = (Rc::clone(gateway), Rc::clone(session));
    // Both are taken before the task is spawned: the session may end before the task's first step.
    let (slot, occupied) = (session.slot(), session.server.occupy());
    session.spawn(async move {
        let _occupied = occupied;
        let tree = match child::start(&gateway, &starting.server, &starting.id).await {
            Ok(tree) => tree,
            Err(error) => return drop(done.send(Err(error))),
        };
        let bridge = Bridge::start(&gateway, &starting, tree, opening);
        let held = starting.hold(Rc::clone(&bridge));
        // If the receiver is gone, the session has ended, and the tree with it.
        let _ = done.send(if held { Ok(Rc::clone(&bridge)) } else { Err(StartFailure::Ended) });
        if !held {
            // The session ended before its tree was started. The tree keeps the slot until it is over.
            bridge.child.over().await;
        }
        drop(slot);
    });
    started.await.unwrap_or(Err(StartFailure::Ended))
}

/// The response to an `initialize` that opened no session.
fn failed(bridge: &Bridge, envelope: &Envelope<'_>, body: Bytes) -> Answer {
    let status = match bridge.never_opened() {
        // A client that asks by the rules of the modern era, which has no handshake, gets the status of that era.
        None if envelope.meta().claims_modern => modern::status(&body),
        None => StatusCode::OK,
        Some(Reason::NotInitialized) => StatusCode::GATEWAY_TIMEOUT,
        Some(_) => StatusCode::BAD_GATEWAY,
    };
    respond::json(status, body)
}
