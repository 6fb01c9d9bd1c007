//! POSTs a message, by either transport.

use std::rc::Rc;

use hyper::Uri;
use tokio::sync::oneshot;

use crate::http::{HttpRequest, HttpResponse};
use crate::response::{RequestFailure, ResponseKind};
use crate::{connection::Connection, exchange::Exchange, message::MessageKind};
use leash_model::limits;

/// POSTs the message of an exchange to `url`. Returns a failure if the upstream refuses it.
pub(crate) async fn post(
    connection: &Rc<Connection>,
    exchange: &Exchange,
    url: Uri,
) -> Result<HttpResponse, RequestFailure> {
    let headers = connection.post_headers(&exchange.message);
    let request = HttpRequest::post(url, headers, exchange.message.line.clone());
    let answer = deliver(connection, exchange, request).await?;
    connection.works();
    match answer.kind() {
        ResponseKind::Refused => Err(RequestFailure::Refused(answer.refusal().await)),
        ResponseKind::Whole | ResponseKind::Stream => Ok(answer),
    }
}

/// Sends an exchange's HTTP request and releases the next message: after a request when its body was handed over, after
/// anything else when the response came or took too long.
async fn deliver(
    connection: &Rc<Connection>,
    exchange: &Exchange,
    mut request: HttpRequest,
) -> Result<HttpResponse, RequestFailure> {
    let (handing, handed) = oneshot::channel();
    request.handed = Some(handing);
    let answer = connection.http.send(request);
    tokio::pin!(answer);
    let first = async {
        match exchange.message.kind {
            // No message is sent before `initialize` is answered.
            MessageKind::Initialize => std::future::pending().await,
            // An error means that the body will never be handed over.
            MessageKind::Request | MessageKind::Subscription => drop(handed.await),
            _ => drop(tokio::time::timeout(limits::ACCEPT, std::future::pending::<()>()).await),
        }
    };
    tokio::select! {
        biased;
        answer = &mut answer => return answer.map_err(|error| connection.unreachable(error)),
        () = first => connection.on_its_way(exchange),
    }
    answer.await.map_err(|error| connection.unreachable(error))
}
