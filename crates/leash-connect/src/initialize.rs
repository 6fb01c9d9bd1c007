//! Begins legacy sessions.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::exchange::{Exchange, ExchangeOutcome};
use crate::http::{HttpRequest, HttpResponse};
use crate::machine::{Event, UpstreamTransport};
use crate::response::{RequestFailure, ResponseKind};
use crate::{connection::Connection, http_sse, notices::Warning, receive::receive, upstream_sessions::UpstreamSession};
use leash_protocol::headers::opened_session;
use leash_upstream::{client::UpstreamError, delete::DeleteTarget};

/// Sends `initialize` and passes its response on. There is no timeout: the host decides how long it waits.
pub(crate) async fn initialize(connection: &Rc<Connection>, exchange: &Rc<Exchange>) -> ExchangeOutcome {
    // The keeper must exist before the upstream can open a session.
    let prepared = connection.sessions.borrow_mut().prepare();
    if let Err(error) = prepared {
        connection.notices.warn_once(Warning::Keeper, || format!("cannot start a keeper: {error}"));
    }
    let transport = connection.life().transport().clone();
    if let UpstreamTransport::HttpSse(_) = transport {
        return http_sse::exchange(connection, exchange).await;
    }
    // Each `initialize` goes to the configured URL. It may redirect somewhere else than before.
    let url = connection.upstream.url.clone();
    let headers = connection.post_headers(&exchange.message);
    let request = HttpRequest::post(url, headers, exchange.message.line.clone());
    let answer = match post(connection, request).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return ExchangeOutcome::Failed(connection.unreachable(error)),
        // `stop_initialize` stopped the task.
        Err(_) => return ExchangeOutcome::Done,
    };
    if answer.kind() != ResponseKind::Refused {
        return receive(connection, exchange, answer).await;
    }
    let refusal = answer.refusal().await;
    let unknown = *connection.life().transport() == UpstreamTransport::Unknown;
    if unknown && refusal.may_be_http_sse() && http_sse::connect(connection).await.is_ok() {
        return http_sse::exchange(connection, exchange).await;
    }
    ExchangeOutcome::Failed(RequestFailure::Refused(refusal))
}

/// POSTs an `initialize` in a task of its own, so that a session is not lost if the caller is dropped. leash records
/// the session before the caller gets the response. If the caller was dropped, leash DELETEs the session.
fn post(connection: &Rc<Connection>, request: HttpRequest) -> oneshot::Receiver<Result<HttpResponse, UpstreamError>> {
    let (sender, receiver) = oneshot::channel();
    let task = Rc::clone(connection);
    connection.tasks.spawn_local(async move {
        let sent = tokio::select! {
            sent = task.http.send(request) => sent,
            () = task.stop_initialize.cancelled() => return,
        };
        if let Ok(answer) = &sent {
            // Even if the caller was dropped: the upstream was reached, so there will be a receipt.
            task.works();
            if answer.kind() != ResponseKind::Refused {
                accepted(&task, answer, !sender.is_closed());
            }
        }
        let _ = sender.send(sent);
    });
    receiver
}

/// Handles the head of the response to `initialize`, with the id of the session that the upstream opened.
fn accepted(connection: &Rc<Connection>, answer: &HttpResponse, awaited: bool) {
    let session = opened_session(answer.response.headers()).map(|id| {
        let (url, headers) = (answer.from.clone(), connection.base_headers());
        let delete_target = DeleteTarget { url, session_id: id.to_owned(), version: None, headers };
        (connection.sessions.borrow_mut().add(UpstreamSession::WithId(delete_target)), id.to_owned())
    });
    connection.apply(Event::InitializeAccepted { endpoint: answer.from.clone(), session, awaited });
}
