//! `initialize`: the server may open a session. A session that no client will use is closed.

use std::rc::Rc;

use hyper::{Response, StatusCode, body::Incoming};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::holding::{self, UpstreamHolding, UpstreamParts};
use super::{RequestFacts, forward, in_session, opening::InitializeBody, revive::Revival, stream::ResponseLimit};
use crate::respond::{self, Answer};
use crate::{call::Call, state::gateway::Gateway, state::server::Server, state::session::ClientSession};
use leash_model::{limits, receipt::Reason};
use leash_protocol::{envelope::codes, headers};
use leash_upstream::{body::Body, client::UpstreamError};

/// Answers `initialize`. A separate task sends the request to the server and goes on when the client leaves: leash sees
/// the session that the server opens, and closes it if the client is gone.
pub(super) async fn answer(gateway: &Rc<Gateway>, server: &Rc<Server>, call: Call, facts: RequestFacts) -> Answer {
    gateway.keeper_link.prepare(gateway);
    let session = match ClientSession::begin(gateway, server, &call) {
        Ok(session) => session,
        Err(refused) => return refused,
    };
    let id = facts.id.clone();
    let (sender, answer) = oneshot::channel();
    let (opening, occupied) = (open(Rc::clone(gateway), Rc::clone(&session), call, facts, sender), server.occupy());
    session.spawn(async move {
        opening.await;
        drop(occupied);
    });
    let answer = tokio::select! {
        biased;
        answer = answer => answer.ok(),
        () = session.over() => None,
    };
    if !session.identified().await {
        // Dropping the response's body ends the session.
        return respond::no_session();
    }
    answer.unwrap_or_else(|| too_late(gateway, id.as_deref()))
}

/// The response to a client whose session ended before it was open.
fn too_late(gateway: &Gateway, id: Option<&RawValue>) -> Answer {
    if gateway.draining.get() {
        return respond::shutting_down(id);
    }
    let text = "Gateway Timeout: the server did not answer initialize in time";
    respond::error(StatusCode::GATEWAY_TIMEOUT, id, codes::SERVER, text)
}

async fn open(
    gateway: Rc<Gateway>,
    session: Rc<ClientSession>,
    call: Call,
    facts: RequestFacts,
    client: oneshot::Sender<Answer>,
) {
    // If the client no longer waits, `send` gives the response back. Dropping its body ends the session.
    let _ = match head(&gateway, &session, &call).await {
        None => {
            holding::never_named(&session);
            Ok(())
        }
        Some(Err(error)) => {
            session.discard();
            if let UpstreamError::Unusable { session: Some(id), .. } = &error {
                // The server has opened a session, but the client gets only an error. leash deletes the session.
                let parts = UpstreamParts { id, version: None, revival: None };
                let upstream = UpstreamHolding::streamable(&session.server, &call.headers, parts);
                upstream.refuse(&gateway, &session.server, Reason::NotInitialized);
            }
            client.send(forward::failed(&session.server, &error, facts.id.as_deref())).map_err(drop)
        }
        Some(Ok(answer)) => match begin(&gateway, &session, &call, facts, answer) {
            Some(answer) => client.send(answer).map_err(drop),
            None => Ok(()),
        },
    };
}

/// Waits for the head of the server's response, also after the session has ended: a session that the server opens late
/// must be closed.
async fn head(
    gateway: &Gateway,
    session: &ClientSession,
    call: &Call,
) -> Option<Result<Response<Incoming>, UpstreamError>> {
    let given_up = async {
        session.over().await;
        gateway.client.deadline.within(limits::LATE_ANSWER).await
    };
    tokio::select! {
        head = forward::send(gateway, &session.server, call, None) => Some(head),
        _ = given_up => None,
        () = session.server.too_late() => None,
    }
}

/// Handles the server's response, with or without a session id. leash records the session before the client gets
/// anything.
fn begin(
    gateway: &Rc<Gateway>,
    session: &Rc<ClientSession>,
    call: &Call,
    facts: RequestFacts,
    answer: Response<Incoming>,
) -> Option<Answer> {
    if !answer.headers().contains_key(headers::SESSION_ID) {
        session.discard();
        return Some(forward::pass(gateway, &session.server, answer, ResponseLimit::End));
    }
    let Some(id) = headers::opened_session(answer.headers()).map(str::to_owned) else {
        session.discard();
        let text = "Bad Gateway: the server gave its session an id that no client could send";
        return Some(respond::error(StatusCode::BAD_GATEWAY, facts.id.as_deref(), codes::SERVER, text));
    };
    // leash keeps this body for as long as the session lives, so it must be small.
    let small = call.body.len() <= limits::REVIVAL;
    let revival = (session.server.settings().policy.revive && small).then(|| Revival::new(call.body.clone()));
    let revives = revival.is_some();
    let version = facts.initialize.flatten();
    let upstream = UpstreamHolding::streamable(
        &session.server,
        &call.headers,
        UpstreamParts { id: &id, version: version.as_deref(), revival },
    );
    holding::note(gateway, gateway.book.open(&upstream.entry(session)));
    session.announce(gateway);
    session.known_client.list(&gateway.book, &session.id);
    let held = session.hold(upstream);
    gateway.keeper_link.hold(session);
    if !held {
        return None;
    }
    if !revives {
        displace(session, &id);
        session.rename(&id);
    }
    Some(pass(gateway, session, answer))
}

fn pass(gateway: &Rc<Gateway>, session: &Rc<ClientSession>, answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let refused = !head.status.is_success();
    let mut opening = InitializeBody::new(body, &head.headers, gateway, session);
    if refused {
        opening = opening.refused();
        session.end(Reason::NotInitialized);
    }
    let mut answer = Response::from_parts(forward::cleaned(head), Body::stream(opening));
    if let Some(upstream) = holding::of(session) {
        in_session::rename(&mut answer, session, upstream);
    }
    answer
}

/// Ends an older session with the same id. The server gave the id to a new session, so the older one cannot exist
/// there.
fn displace(session: &ClientSession, id: &str) {
    let Some(old) = session.server.session(id) else { return };
    if let Some(upstream) = holding::of(&old) {
        upstream.forgotten(StatusCode::NOT_FOUND);
    }
    old.end(Reason::UpstreamForgot);
}
