//! Reads the response to a message: another message, a stream of messages, or nothing.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::event_stream::{self, EventStream, ResumePoint, StreamItem};
use crate::exchange::{Exchange, ExchangeOutcome};
use crate::get_stream::{self, Unavailable};
use crate::response::{RequestFailure, ResponseKind, one_line};
use crate::{backoff::BackOff, connection::Connection, http::HttpResponse, notices::Warning};
use leash_model::limits;
use leash_protocol::{envelope::Message, era::Era};

/// Passes the response to an accepted message on to the host.
pub(crate) async fn receive(
    connection: &Rc<Connection>,
    exchange: &Rc<Exchange>,
    answer: HttpResponse,
) -> ExchangeOutcome {
    connection.accepted(exchange);
    let is_stream = answer.kind() == ResponseKind::Stream;
    let body = answer.response.into_body();
    if is_stream {
        return follow(connection, exchange, EventStream::new(body)).await;
    }
    let body: Bytes = match Limited::new(body, limits::LINE).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return ExchangeOutcome::Failed(RequestFailure::TooLarge),
        Err(_) => return ExchangeOutcome::Failed(RequestFailure::StreamBroke),
    };
    if body.trim_ascii().is_empty() {
        return unanswered(connection, exchange).await;
    }
    match pass(connection, Some(exchange), &body).await {
        true if exchange.is_answered() => ExchangeOutcome::Done,
        true => ExchangeOutcome::Failed(RequestFailure::NotAnswered),
        // Some servers answer a notification with plain text. It is not a message, and the host does not need it.
        false if exchange.message.requests.is_empty() => ExchangeOutcome::Done,
        false => ExchangeOutcome::Failed(RequestFailure::NotMcp),
    }
}

/// Waits for the response to a request that the upstream only accepted: it can come on another open stream.
async fn unanswered(connection: &Rc<Connection>, exchange: &Rc<Exchange>) -> ExchangeOutcome {
    if exchange.is_answered() {
        return ExchangeOutcome::Done;
    }
    loop {
        let stopped = connection.listener_stopped.notified();
        if connection.traffic.borrow().listeners == 0 || exchange.is_initialize() {
            return ExchangeOutcome::Failed(RequestFailure::NotAnswered);
        }
        tokio::select! {
            biased;
            () = exchange.answered() => return ExchangeOutcome::Done,
            () = stopped => {}
        }
    }
}

/// Passes a stream on until all requests are answered. Resumes it after a break, if possible.
async fn follow(connection: &Rc<Connection>, exchange: &Rc<Exchange>, stream: EventStream) -> ExchangeOutcome {
    let mut point = ResumePoint::default();
    let mut back_off = BackOff::default();
    let mut whole = drain(connection, exchange, stream, &mut point).await;
    loop {
        if exchange.is_answered() || exchange.is_cancelled() {
            return ExchangeOutcome::Done;
        }
        // Modern streams cannot be resumed, and legacy streams only if the server gave its events ids.
        if exchange.message.era == Era::Modern || point.last_id.is_none() || exchange.is_initialize() {
            return ExchangeOutcome::Failed(RequestFailure::StreamBroke);
        }
        if !whole {
            // The dropped event may be the response. After a resume it would come again and be too large again.
            return ExchangeOutcome::Failed(RequestFailure::TooLarge);
        }
        if let Some(retry) = point.retry {
            back_off.asked(retry);
        }
        let pause = tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next());
        tokio::select! {
            () = exchange.answered() => return ExchangeOutcome::Done,
            () = pause => {}
        }
        match get_stream::get(connection, point.last_id.as_deref()).await {
            Ok(stream) => {
                let before = point.last_id.clone();
                whole = drain(connection, exchange, stream, &mut point).await;
                if point.last_id != before {
                    back_off.worked();
                }
            }
            Err(Unavailable::ForNow) => {}
            Err(Unavailable::ForGood) => return ExchangeOutcome::Failed(RequestFailure::StreamBroke),
        }
    }
}

/// Passes a stream on until it is over. After the last response, leash waits a moment and then drops the stream: a
/// server that never closes it must not hold a connection forever. Returns false if leash dropped an event.
async fn drain(
    connection: &Rc<Connection>,
    exchange: &Rc<Exchange>,
    mut stream: EventStream,
    point: &mut ResumePoint,
) -> bool {
    let mut whole = true;
    let enough = async {
        exchange.answered().await;
        connection.done(exchange);
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    };
    tokio::pin!(enough);
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            () = &mut enough => return whole,
        };
        match item {
            StreamItem::Event(event) => {
                point.pass(&event);
                if let Some(message) = event_stream::message(&event) {
                    pass(connection, Some(exchange), &message).await;
                }
            }
            StreamItem::TooLarge => {
                whole = false;
                warn_of_dropped_event(connection);
            }
            StreamItem::Ended => return whole,
        }
    }
}

/// Passes a stream that belongs to no exchange on to its end. Returns true if an event came.
pub(crate) async fn pass_stream(connection: &Rc<Connection>, mut stream: EventStream, point: &mut ResumePoint) -> bool {
    let mut came = false;
    loop {
        match stream.next().await {
            StreamItem::Event(event) => {
                came |= !event.is_comment_only();
                point.pass(&event);
                if let Some(message) = event_stream::message(&event) {
                    pass(connection, None, &message).await;
                }
            }
            StreamItem::TooLarge => warn_of_dropped_event(connection),
            StreamItem::Ended => return came,
        }
    }
}

fn warn_of_dropped_event(connection: &Connection) {
    connection.notices.warn("the upstream server sent an event that is too large; leash dropped it");
}

/// Passes a message on to the host. Returns false if it is not a message.
async fn pass(connection: &Rc<Connection>, exchange: Option<&Rc<Exchange>>, bytes: &[u8]) -> bool {
    let Ok(message) = Message::read(bytes) else {
        let text = || "the upstream server sent something that is not MCP; leash dropped it".to_owned();
        connection.notices.warn_once(Warning::NotMcp, text);
        return false;
    };
    // leash records the session before the host gets the response to `initialize`.
    let silent = connection.before_passing(exchange, &message);
    if !silent {
        // Queued for the host first, because a request is only answered then. If the host is gone, the main loop
        // notices.
        let _ = connection.host.send(one_line(bytes)).await;
    }
    connection.after_passing(exchange, &message);
    true
}
