//! `initialize`: the server may open a session, and must not have opened it in vain.

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::holding;
use super::holding::{Found, Upstream};
use super::opening::Opening;
use super::revive::Revival;
use super::stream::Until;
use super::{Asked, forward, in_session};
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

/// Answers `initialize`. The server is asked in a task of its own, which goes on when the client leaves: whatever the server
/// opens is seen, and closed if nobody wants it any more.
pub(super) async fn answer(gateway: &Rc<Gateway>, server: &Rc<Server>, call: Call, asked: Asked) -> Answer {
    gateway.keeping.prepare(gateway);
    let session = match Session::begin(gateway, server, &call) {
        Ok(session) => session,
        Err(refused) => return refused,
    };
    let id = asked.id.clone();
    let (sender, answer) = oneshot::channel();
    let (opening, occupied) = (open(Rc::clone(gateway), Rc::clone(&session), call, asked, sender), server.occupy());
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
        // The body of the answer ends the session when it is dropped.
        return respond::no_session();
    }
    answer.unwrap_or_else(|| too_late(gateway, id.as_deref()))
}

/// The session ended before it was open.
fn too_late(gateway: &Gateway, id: Option<&RawValue>) -> Answer {
    if gateway.draining.get() {
        let text = "Service Unavailable: the gateway is shutting down";
        return respond::error(StatusCode::SERVICE_UNAVAILABLE, id, codes::SERVER, text);
    }
    let text = "Gateway Timeout: the server did not answer initialize in time";
    respond::error(StatusCode::GATEWAY_TIMEOUT, id, codes::SERVER, text)
}

async fn open(gateway: Rc<Gateway>, session: Rc<Session>, call: Call, asked: Asked, client: oneshot::Sender<Answer>) {
    // If nobody waits any more, the sender gives the answer back, and its body ends the session when it is dropped.
    let _ = match head(&gateway, &session, &call).await {
        None => {
            holding::never_named(&session);
            Ok(())
        }
        Some(Err(error)) => {
            session.discard();
            if let UpstreamError::Unusable { session: Some(id), .. } = &error {
                // The server has opened a session that no client will know.
                let found = Found { id, version: None, revival: None };
                Upstream::streamable(&session.server, &call.headers, found).refuse(
                    &gateway,
                    &session.server,
                    Reason::NotInitialized,
                );
            }
            client.send(forward::failed(&error, asked.id.as_deref())).map_err(drop)
        }
        Some(Ok(answer)) => match begin(&gateway, &session, &call, asked, answer) {
            Some(answer) => client.send(answer).map_err(drop),
            None => Ok(()),
        },
    };
}

/// The head of the server's answer. It is waited for beyond the session's own end: what it opens must be closed.
async fn head(gateway: &Gateway, session: &Session, call: &Call) -> Option<Result<Response<Incoming>, UpstreamError>> {
    let given_up = async {
        session.over().await;
        gateway.client.hurry.within(limits::LATE_ANSWER).await
    };
    tokio::select! {
        head = forward::send(gateway, &session.server, call, None) => Some(head),
        _ = given_up => None,
        () = session.server.too_late() => None,
    }
}

/// The server answered: there is a session, or there is none. Nothing goes to the client before the session is written down.
fn begin(
    gateway: &Rc<Gateway>,
    session: &Rc<Session>,
    call: &Call,
    asked: Asked,
    answer: Response<Incoming>,
) -> Option<Answer> {
    if !answer.headers().contains_key(headers::SESSION_ID) {
        session.discard();
        return Some(forward::pass(gateway, &session.server, answer, Until::End));
    }
    let Some(id) = forward::session_id(&answer) else {
        session.discard();
        let text = "Bad Gateway: the server gave its session an id that no client could send";
        return Some(respond::error(StatusCode::BAD_GATEWAY, asked.id.as_deref(), codes::SERVER, text));
    };
    // What is kept for every session must be small.
    let small = call.body.len() <= limits::REVIVAL;
    let revival = (session.server.settings().policy.revive && small).then(|| Revival::new(call.body.clone()));
    let revives = revival.is_some();
    let version = asked.initialize.flatten();
    let upstream =
        Upstream::streamable(&session.server, &call.headers, Found { id: &id, version: version.as_deref(), revival });
    holding::note(gateway, gateway.book.open(&upstream.entry(session)));
    session.announce(gateway);
    let held = session.hold(Holding::Upstream(Box::new(upstream)));
    gateway.keeping.hold(session);
    if !held {
        return None;
    }
    if !revives {
        displace(session, &id);
        session.rename(&id);
    }
    Some(pass(gateway, session, answer))
}

fn pass(gateway: &Rc<Gateway>, session: &Rc<Session>, answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let refused = !head.status.is_success();
    let mut opening = Opening::new(body, &head.headers, gateway, session);
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

/// A session that goes by the same id is not there any more, whatever became of it: the server has given the id away again.
fn displace(session: &Session, id: &str) {
    let Some(old) = session.server.session(id) else { return };
    if let Some(upstream) = holding::of(&old) {
        upstream.forgotten(StatusCode::NOT_FOUND);
    }
    old.end(Reason::UpstreamForgot);
}
