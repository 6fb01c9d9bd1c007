//! Sends a message to the upstream and ends its exchange.

use std::rc::Rc;

use hyper::Method;

use crate::connection::Connection;
use crate::exchange::{Exchange, ExchangeOutcome};
use crate::machine::{Event, UpstreamTransport};
use crate::message::MessageKind;
use crate::notices::Warning;
use crate::receive::receive;
use crate::response::RequestFailure;
use crate::{http_sse, initialize, listen, post};
use leash_protocol::era::Era;

/// Sends a message of the host and passes the response on, until the exchange ends.
pub(crate) async fn send(connection: Rc<Connection>, exchange: Rc<Exchange>) {
    let outcome = tokio::select! {
        biased;
        () = exchange.given_up() => ExchangeOutcome::Done,
        outcome = run(&connection, &exchange) => outcome,
    };
    match outcome {
        ExchangeOutcome::Done => {}
        ExchangeOutcome::Failed(failure) => fail(&connection, &exchange, &failure).await,
        ExchangeOutcome::SessionLost(failure) => send_again(&connection, &exchange, failure).await,
    }
    connection.forget(&exchange);
}

/// Answers the unanswered requests of an exchange with an error.
async fn fail(connection: &Rc<Connection>, exchange: &Exchange, failure: &RequestFailure) {
    let unanswered = exchange.take_unanswered();
    if exchange.is_cancelled() {
        return;
    }
    if unanswered.is_empty() {
        let warning = if let RequestFailure::Refused(_) = failure { Warning::Refused } else { Warning::Unreachable };
        return connection.notices.warn_once(warning, || format!("a notification was not delivered: {failure}"));
    }
    for request in &unanswered {
        // If the host is gone, the main loop notices.
        let _ = connection.host.send(failure.answer(request)).await;
    }
}

/// Handles a message that the upstream did not accept because it had lost the session: the message is sent again in a
/// new session, once.
async fn send_again(connection: &Rc<Connection>, exchange: &Rc<Exchange>, failure: RequestFailure) {
    let revives = connection.life().revives();
    if revives && !exchange.message.repeated && !exchange.is_cancelled() {
        connection.done(exchange);
        connection.traffic.borrow_mut().outbox.put_back(exchange.message.clone());
    } else {
        fail(connection, exchange, if revives { &failure } else { &RequestFailure::SessionLost }).await;
    }
    connection.session_lost(exchange.generation, &failure);
    connection.wake.notify_one();
}

/// Sends a message by the current transport, and passes the response on.
pub(crate) async fn run(connection: &Rc<Connection>, exchange: &Rc<Exchange>) -> ExchangeOutcome {
    if exchange.is_initialize() {
        return initialize::initialize(connection, exchange).await;
    }
    let transport = connection.life().transport().clone();
    if let UpstreamTransport::HttpSse(_) = transport {
        return http_sse::exchange(connection, exchange).await;
    }
    let url = connection.endpoint();
    let answer = match post::post(connection, exchange, url.clone()).await {
        Ok(answer) => answer,
        Err(failure) => return failed(connection, exchange, failure),
    };
    connection.apply(Event::PostAccepted(url));
    if exchange.message.kind == MessageKind::Initialized && !exchange.silent {
        listen::begin(connection);
    }
    receive(connection, exchange, answer).await
}

/// Decides whether a failure means that the upstream has lost the session.
fn failed(connection: &Rc<Connection>, exchange: &Exchange, failure: RequestFailure) -> ExchangeOutcome {
    let in_session = exchange.message.era == Era::Legacy && connection.life().has_session_id();
    match &failure {
        RequestFailure::Refused(refusal) if in_session && refusal.lost(&Method::POST).is_some() => {
            ExchangeOutcome::SessionLost(failure)
        }
        _ => ExchangeOutcome::Failed(failure),
    }
}
