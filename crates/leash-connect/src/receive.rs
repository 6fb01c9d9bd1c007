//! Reads the response to a line: a message, a stream of messages, or nothing.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::Response;
use hyper::body::Incoming;

use super::backoff::BackOff;
use super::exchange::{End, Exchange};
use super::feed;
use super::feed::{Fed, Feed, Place};
use super::link::{Complaint, Link};
use super::listen;
use super::listen::Next;
use super::parcel::What;
use super::reply::{Reply, Trouble, one_line};
use super::revive;
use leash_model::limits;
use leash_protocol::envelope::Message;
use leash_protocol::era::Era;
use leash_upstream::notice::Notice;

/// Passes the response to an accepted line on to the host.
pub(super) async fn receive(link: &Rc<Link>, exchange: &Rc<Exchange>, response: Response<Incoming>) -> End {
    exchange.accepted(link);
    if Reply::of(response.status(), response.headers()) == Reply::Stream {
        return follow(link, exchange, Feed::new(response.into_body())).await;
    }
    let body: Bytes = match Limited::new(response.into_body(), limits::LINE).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return End::Failed(Trouble::TooLarge),
        Err(_) => return End::Failed(Trouble::Cut),
    };
    if body.trim_ascii().is_empty() {
        return unanswered(link, exchange).await;
    }
    match pass(link, Some(exchange), &body).await {
        true if exchange.is_answered() => End::Settled,
        true => End::Failed(Trouble::Nothing),
        // Some servers answer a notification with plain text. It is not a message, and the host does not need it.
        false if exchange.parcel().asks.is_empty() => End::Settled,
        false => End::Failed(Trouble::Garbage),
    }
}

/// Waits for the response to a request that the upstream only accepted: it can come on another open stream.
async fn unanswered(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    if exchange.is_answered() {
        return End::Settled;
    }
    loop {
        let deaf = link.deaf.notified();
        if link.state.borrow().listeners == 0 || exchange.what == What::Initialize {
            return End::Failed(Trouble::Nothing);
        }
        tokio::select! {
            biased;
            () = exchange.settled() => return End::Settled,
            () = deaf => {}
        }
    }
}

/// Passes a stream on until all requests are answered. Resumes it after a break, if possible.
async fn follow(link: &Rc<Link>, exchange: &Rc<Exchange>, feed: Feed) -> End {
    let mut place = Place::default();
    let mut back_off = BackOff::default();
    let mut whole = drain(link, exchange, feed, &mut place).await;
    loop {
        if exchange.is_answered() || exchange.is_taken_back() {
            return End::Settled;
        }
        // Modern streams cannot be resumed, and legacy streams only if the server gave its events ids.
        if exchange.era == Era::Modern || place.last_id.is_none() || exchange.what == What::Initialize {
            return End::Failed(Trouble::Cut);
        }
        if !whole {
            // The dropped event may be the response. After a resume it would come again and be too large again.
            return End::Failed(Trouble::TooLarge);
        }
        if let Some(retry) = place.retry {
            back_off.asked(retry);
        }
        let pause = tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next());
        tokio::select! {
            () = exchange.settled() => return End::Settled,
            () = pause => {}
        }
        match listen::get(link, place.last_id.as_deref()).await {
            Ok(feed) => {
                let before = place.last_id.clone();
                whole = drain(link, exchange, feed, &mut place).await;
                if place.last_id != before {
                    back_off.worked();
                }
            }
            Err(listen::Closed::Unreachable) => {}
            Err(listen::Closed::Refused(refusal)) => match listen::next(link, &refusal) {
                Next::Again => {}
                Next::Never => return End::Failed(Trouble::Cut),
                Next::Lost => {
                    revive::lost(link, Trouble::Refused(refusal));
                    return End::Failed(Trouble::Cut);
                }
            },
        }
    }
}

/// Passes a stream on until it is over. After the last response, leash waits a moment and then drops the stream: a
/// server that never closes it must not hold a connection forever. Returns false if leash dropped an event.
async fn drain(link: &Rc<Link>, exchange: &Rc<Exchange>, mut feed: Feed, place: &mut Place) -> bool {
    let mut whole = true;
    let enough = async {
        exchange.settled().await;
        link.done(exchange);
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    };
    tokio::pin!(enough);
    loop {
        let fed = tokio::select! {
            fed = feed.next() => fed,
            () = &mut enough => return whole,
        };
        match fed {
            Fed::Event(event) => {
                place.pass(&event);
                if let Some(message) = feed::message(&event) {
                    pass(link, Some(exchange), &message).await;
                }
            }
            Fed::TooLarge => {
                whole = false;
                too_large(link);
            }
            Fed::Over => return whole,
        }
    }
}

/// Warns that leash dropped an event.
pub(super) fn too_large(link: &Link) {
    link.tell(Notice::Warning("upstream sent an event that is too large; leash dropped it".to_owned()));
}

/// Passes a message on to the host. Returns false if it is not a message.
pub(super) async fn pass(link: &Rc<Link>, exchange: Option<&Rc<Exchange>>, bytes: &[u8]) -> bool {
    let Ok(message) = Message::read(bytes) else {
        link.complain(Complaint::Garbage, || "upstream sent something that is not MCP; leash dropped it".to_owned());
        return false;
    };
    // leash records the session before the host gets the response to `initialize`.
    let silent = link.foresee(exchange, &message);
    if !silent {
        // Queued for the host first, because a request is only answered then. If the host is gone, the driver notices.
        let _ = link.voice.say(one_line(bytes)).await;
    }
    link.settle(exchange, &message);
    true
}
