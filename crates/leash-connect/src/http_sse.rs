//! HTTP+SSE of 2024-11-05: the server sends all its messages on one stream, whose first event names the address for
//! POST. The stream is the session: when it closes, the session is over, and there is nothing to DELETE.

use std::rc::Rc;

use hyper::Uri;
use tokio_util::sync::CancellationToken;

use crate::event_stream::{EventStream, ResumePoint, StreamItem};
use crate::exchange::{Exchange, ExchangeOutcome};
use crate::machine::{Event, UpstreamTransport};
use crate::response::{RequestFailure, ResponseKind};
use crate::{connection::Connection, http::HttpRequest, post, receive, upstream_sessions::UpstreamSession};
use leash_model::limits;
use leash_upstream::client;

/// Opens the stream, reads the address for POST, and starts a listener.
pub(crate) async fn connect(connection: &Rc<Connection>) -> Result<(), RequestFailure> {
    let opening = tokio::time::timeout(limits::ENDPOINT, open_stream(connection)).await;
    let (endpoint, stream) = opening.unwrap_or(Err(RequestFailure::NoEndpoint))?;
    let session = connection.sessions.borrow_mut().add(UpstreamSession::Stream(connection.upstream.url.clone()));
    connection.apply(Event::StreamOpened { endpoint, session });
    let (closed, generation) = (CancellationToken::new(), connection.generation());
    connection.traffic.borrow_mut().listener = Some(closed.clone());
    let listener = Rc::clone(connection);
    connection.spawn(async move {
        let mut point = ResumePoint::default();
        let passing = receive::pass_stream(&listener, stream, &mut point);
        // `None` if leash itself has stopped the listener, for a newer stream.
        if closed.run_until_cancelled(passing).await.is_some() {
            closed.cancel();
            listener.apply(Event::StreamClosed { generation });
        }
    });
    Ok(())
}

async fn open_stream(connection: &Rc<Connection>) -> Result<(Uri, EventStream), RequestFailure> {
    let request = HttpRequest::get(connection.upstream.url.clone(), connection.get_headers(None));
    let answer = connection.http.send(request).await.map_err(|error| connection.unreachable(error))?;
    connection.works();
    match answer.kind() {
        ResponseKind::Refused => return Err(RequestFailure::Refused(answer.refusal().await)),
        ResponseKind::Whole => return Err(RequestFailure::NotMcp),
        ResponseKind::Stream => {}
    }
    let mut stream = EventStream::new(answer.response.into_body());
    loop {
        match stream.next().await {
            StreamItem::Event(event) if event.name().as_deref() == Some("endpoint") => {
                let named = event.data().and_then(|data| String::from_utf8(data).ok());
                // leash sends credentials there, so it must be the same server.
                let endpoint = named.and_then(|named| client::resolve(&answer.from, named.trim()));
                return endpoint.map(|endpoint| (endpoint, stream)).ok_or(RequestFailure::NoEndpoint);
            }
            StreamItem::Event(_) | StreamItem::TooLarge => {}
            StreamItem::Ended => return Err(RequestFailure::NoEndpoint),
        }
    }
}

/// Sends a message and waits for its responses on the stream. Opens the stream if it is closed and the message does not
/// need an earlier handshake.
pub(crate) async fn exchange(connection: &Rc<Connection>, exchange: &Rc<Exchange>) -> ExchangeOutcome {
    let closed = *connection.life().transport() == UpstreamTransport::HttpSse(None);
    if closed {
        let needs_handshake = !exchange.is_initialize() && connection.traffic.borrow().initialize.is_some();
        if needs_handshake {
            return ExchangeOutcome::SessionLost(RequestFailure::StreamClosed);
        }
        if let Err(failure) = connect(connection).await {
            return ExchangeOutcome::Failed(failure);
        }
    }
    let transport = connection.life().transport().clone();
    let stream = connection.traffic.borrow().listener.clone();
    let (UpstreamTransport::HttpSse(Some(url)), Some(stream)) = (transport, stream) else {
        return ExchangeOutcome::SessionLost(RequestFailure::StreamClosed);
    };
    if let Err(failure) = post::post(connection, exchange, url).await {
        return ExchangeOutcome::Failed(failure);
    }
    connection.accepted(exchange);
    tokio::select! {
        biased;
        () = exchange.answered() => ExchangeOutcome::Done,
        () = stream.cancelled() => ExchangeOutcome::Failed(RequestFailure::StreamClosed),
    }
}
