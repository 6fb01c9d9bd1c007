//! Requests of a session that is open upstream.

use std::rc::Rc;

use hyper::{Method, Response, StatusCode, body::Incoming, header::HeaderValue};

use super::holding::{self, UpstreamHolding};
use super::{RequestFacts, forward, listen::ListenBody, revive, stream::ResponseLimit};
use crate::respond::{self, Answer};
use crate::state::session::{ClientSession, InFlight};
use crate::{call::Call, state::gateway::Gateway};
use leash_model::receipt::Reason;
use leash_protocol::headers;
use leash_upstream::lost::{Lost, lost};
use leash_upstream::{body::Body, client::UpstreamError};

/// The response of an upstream.
enum UpstreamResponse {
    /// A response for the client.
    Fine(Response<Incoming>),
    /// A response for the client, read to its end.
    Short(Response<bytes::Bytes>),
    /// The upstream no longer knows the session.
    Lost(Response<bytes::Bytes>, Lost),
}

/// Answers a request of a session.
pub(super) async fn answer(
    gateway: &Rc<Gateway>,
    session: &Rc<ClientSession>,
    call: &Call,
    facts: RequestFacts,
) -> Answer {
    // A client cannot know the id of a session that is still opening.
    let Some(upstream) = holding::of(session) else { return respond::no_session() };
    let flight = if call.method == Method::GET { session.listens() } else { session.began() };
    // The session may have timed out just now.
    if !session.usable() {
        return respond::no_session();
    }
    upstream.pings.client_is_alive();
    if facts.answers_ping {
        upstream.pings.answered();
        return respond::empty(StatusCode::ACCEPTED);
    }
    session.called(facts.requests);
    upstream.remember(gateway, session, call);
    if let Some(revival) = upstream.revival().filter(|_| facts.initialized) {
        revival.initialized(call.body.clone());
        gateway.keeper_link.changed(session);
    }
    let mut once_more = upstream.revival().is_some();
    loop {
        revive::settled(upstream).await;
        let id = upstream.id();
        let heard = tokio::select! {
            heard = ask(gateway, session, call, &id) => heard,
            // The session ended before the server responded.
            () = upstream.gone().cancelled_owned() => return ended(gateway, &facts),
        };
        let (answer, lost) = match heard {
            Ok(UpstreamResponse::Lost(answer, lost)) => (answer, lost),
            Ok(UpstreamResponse::Fine(answer)) => {
                let passed = tokio::select! {
                    passed = pass(gateway, call, answer, flight) => passed,
                    () = upstream.gone().cancelled_owned() => return ended(gateway, &facts),
                };
                return passed.unwrap_or_else(|error| forward::failed(&session.server, &error, facts.id.as_deref()));
            }
            Ok(UpstreamResponse::Short(answer)) => return short(session, upstream, answer),
            Err(error) => return forward::failed(&session.server, &error, facts.id.as_deref()),
        };
        if !std::mem::take(&mut once_more) || !revive::revive(gateway, session, &id, lost).await {
            if upstream.id() != id {
                // The server lost an id that was replaced meanwhile. That says nothing about the new id.
                return short(session, upstream, answer);
            }
            upstream.forgotten(answer.status());
            session.end(Reason::UpstreamForgot);
            return short(session, upstream, answer);
        }
    }
}

/// Asks the upstream once.
async fn ask(
    gateway: &Gateway,
    session: &ClientSession,
    call: &Call,
    id: &str,
) -> Result<UpstreamResponse, UpstreamError> {
    let answer = forward::send(gateway, &session.server, call, Some(id)).await?;
    let revives = holding::of(session).is_some_and(|upstream| upstream.revival().is_some());
    let status = answer.status();
    if status != StatusCode::NOT_FOUND && !(revives && status == StatusCode::BAD_REQUEST) {
        return Ok(UpstreamResponse::Fine(answer));
    }
    // If the body cannot be read, only the status counts.
    let answer = forward::read(answer).await.unwrap_or_else(|| {
        let mut bare = Response::default();
        *bare.status_mut() = status;
        bare
    });
    Ok(match lost(&call.method, status, answer.body()) {
        Some(lost) => UpstreamResponse::Lost(answer, lost),
        None => UpstreamResponse::Short(answer),
    })
}

/// The response to a client whose session ended before the server responded.
fn ended(gateway: &Gateway, facts: &RequestFacts) -> Answer {
    let id = facts.id.as_deref();
    if gateway.draining.get() {
        return respond::shutting_down(id);
    }
    respond::error(StatusCode::NOT_FOUND, id, -32001, "Session not found: it ended before the server answered")
}

/// Passes a response on for as long as the session lasts.
async fn pass(
    gateway: &Rc<Gateway>,
    call: &Call,
    answer: Response<Incoming>,
    flight: InFlight,
) -> Result<Answer, UpstreamError> {
    let session = Rc::clone(&flight.session);
    let Some(upstream) = holding::of(&session) else { return Ok(respond::no_session()) };
    let named = headers::opened_session(answer.headers());
    let ours = |named: &str| upstream.revival().is_some() || *named == *upstream.id() || *named == *session.token();
    if let Some(other) = named.filter(|named| !ours(named)) {
        // The server opened another session. If leash has no room to guard it, this request still succeeds.
        let _ = forward::adopt(gateway, &session.server, call, other);
    }
    let listens = call.method == Method::GET && headers::is_event_stream(answer.headers());
    let mut answer = if listens {
        let (head, body) = answer.into_parts();
        let counters = gateway.metrics.of(&session.server.bucket);
        let listening = ListenBody::new(body, counters, ResponseLimit::Session(flight));
        Response::from_parts(forward::cleaned(head), Body::stream(listening))
    } else {
        forward::pass_whole(gateway, &session.server, answer, ResponseLimit::Session(flight)).await?
    };
    rename(&mut answer, &session, upstream);
    Ok(answer)
}

fn short(session: &ClientSession, upstream: &UpstreamHolding, answer: Response<bytes::Bytes>) -> Answer {
    let mut answer = answer.map(Body::Whole);
    rename(&mut answer, session, upstream);
    answer
}

/// Puts leash's own id into a response if the session can be revived: the client only knows that id.
pub(super) fn rename(answer: &mut Answer, session: &ClientSession, upstream: &UpstreamHolding) {
    // The upstream's id, from before or after a revival, is never known to the client.
    let named = answer.headers().contains_key(headers::SESSION_ID) && upstream.revival().is_some();
    if named && let Ok(token) = HeaderValue::from_str(&session.token()) {
        answer.headers_mut().insert(headers::SESSION_ID, token);
    }
}
