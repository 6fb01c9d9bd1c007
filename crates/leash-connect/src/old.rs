//! HTTP+SSE of 2024-11-05: the server sends all its messages on one stream, whose first event names the address for
//! POST. The stream is the session: when it closes, the session is over, and there is nothing to DELETE.

use std::rc::Rc;

use bytes::Bytes;
use hyper::{Method, Uri};
use tokio_util::sync::CancellationToken;

use super::exchange::{End, Exchange};
use super::feed;
use super::feed::{Fed, Feed};
use super::lease::Claim;
use super::link::{Link, Mode};
use super::reply::{Reply, Trouble, is_stream};
use super::wire::Outgoing;
use super::{carry, open, receive, revive};
use leash_model::limits;
use leash_upstream::client;

/// Opens the stream, reads the address, and starts a listener.
pub(super) async fn connect(link: &Rc<Link>) -> Result<(), Trouble> {
    let opening = tokio::time::timeout(limits::ENDPOINT, open_stream(link)).await;
    let (endpoint, feed) = opening.unwrap_or(Err(Trouble::Endpoint))?;
    let stream = CancellationToken::new();
    {
        let mut state = link.state.borrow_mut();
        state.mode = Mode::Old(Some(endpoint));
        state.generation += 1;
        if let Some(before) = state.listening.replace(stream.clone()) {
            before.cancel();
        }
    }
    open::hold(link, Some(Claim::Stream(link.upstream.url.clone())));
    let listener = Rc::clone(link);
    link.spawn(async move {
        let over = stream.run_until_cancelled(hear_out(&listener, feed)).await;
        // The upstream ended the stream. leash did not cancel it for a newer one.
        if over.is_some() {
            stream.cancel();
            listener.state.borrow_mut().mode = Mode::Old(None);
            revive::lost(&listener, Trouble::Closed);
        }
    });
    Ok(())
}

async fn open_stream(link: &Rc<Link>) -> Result<(Uri, Feed), Trouble> {
    let outgoing = Outgoing {
        method: Method::GET,
        url: link.upstream.url.clone(),
        headers: link.get_headers(None),
        body: Bytes::new(),
        handed: None,
    };
    let answer = link.wire.send(outgoing).await.map_err(Trouble::Wire)?;
    link.works();
    if !answer.response.status().is_success() {
        return Err(Trouble::Refused(carry::refused(answer.response).await));
    }
    if !is_stream(answer.response.headers()) {
        return Err(Trouble::Garbage);
    }
    let mut feed = Feed::new(answer.response.into_body());
    loop {
        match feed.next().await {
            Fed::Event(event) if event.name().as_deref() == Some("endpoint") => {
                let named = event.data().and_then(|data| String::from_utf8(data).ok());
                // leash sends credentials there, so it must be the same server.
                let endpoint = named.and_then(|named| client::resolve(&answer.from, named.trim()));
                return endpoint.map(|endpoint| (endpoint, feed)).ok_or(Trouble::Endpoint);
            }
            Fed::Event(_) | Fed::TooLarge => {}
            Fed::Over => return Err(Trouble::Endpoint),
        }
    }
}

/// Passes all messages of the server on, until the stream is closed.
async fn hear_out(link: &Rc<Link>, mut feed: Feed) {
    loop {
        match feed.next().await {
            Fed::Event(event) => {
                if let Some(message) = feed::message(&event) {
                    receive::pass(link, None, &message).await;
                }
            }
            Fed::TooLarge => receive::too_large(link),
            Fed::Over => return,
        }
    }
}

/// Opens the session: opens the stream if it is closed, and sends `initialize`.
pub(super) async fn initialize(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    let closed = link.state.borrow().mode == Mode::Old(None);
    if closed && let Err(trouble) = connect(link).await {
        return End::Failed(trouble);
    }
    post(link, exchange).await
}

/// Sends a line and waits for its responses on the stream.
pub(super) async fn carry(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    let (connected, handshake) = {
        let state = link.state.borrow();
        (state.mode != Mode::Old(None), state.initialize.is_some())
    };
    match (connected, handshake) {
        (true, _) => {}
        // The stream is closed, so a new handshake is needed.
        (false, true) => return End::Lost(Trouble::Closed),
        (false, false) => {
            if let Err(trouble) = connect(link).await {
                return End::Failed(trouble);
            }
        }
    }
    post(link, exchange).await
}

async fn post(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    let (url, stream) = {
        let state = link.state.borrow();
        match (&state.mode, &state.listening) {
            (Mode::Old(Some(endpoint)), Some(stream)) => (endpoint.clone(), stream.clone()),
            _ => return End::Lost(Trouble::Closed),
        }
    };
    let headers = link.post_headers(&exchange.what, exchange.era, exchange.line());
    let outgoing = Outgoing { method: Method::POST, url, headers, body: exchange.line().clone(), handed: None };
    let answer = match carry::deliver(link, exchange, outgoing).await {
        Ok(answer) => answer,
        Err(trouble) => return End::Failed(trouble),
    };
    link.works();
    if Reply::of(answer.response.status(), answer.response.headers()) == Reply::Refused {
        return End::Failed(Trouble::Refused(carry::refused(answer.response).await));
    }
    exchange.accepted(link);
    tokio::select! {
        biased;
        () = exchange.settled() => End::Settled,
        () = stream.cancelled() => End::Failed(Trouble::Closed),
    }
}
