//! Requests an event stream by Streamable HTTP: the one for the server's own messages, or the rest of a broken one.

use std::rc::Rc;

use hyper::Method;

use crate::response::{RefusedResponse, RequestFailure, ResponseKind};
use crate::{connection::Connection, event_stream::EventStream, http::HttpRequest};

/// The reason why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// leash may request the stream again.
    ForNow,
    /// The server has no such stream, or has lost the session.
    ForGood,
}

/// Requests a stream: the server's own, or the rest of the stream that broke after `last_id`. Reports a lost session.
pub(crate) async fn get(connection: &Rc<Connection>, last_id: Option<&str>) -> Result<EventStream, Unavailable> {
    let generation = connection.generation();
    let request = HttpRequest::get(connection.endpoint(), connection.get_headers(last_id));
    let answer = connection.http.send(request).await.map_err(|_| Unavailable::ForNow)?;
    connection.works();
    if answer.kind() == ResponseKind::Stream {
        return Ok(EventStream::new(answer.response.into_body()));
    }
    let refusal = answer.refusal().await;
    let meaning = judge(&refusal, connection.life().has_session_id());
    match meaning {
        StreamRefusal::Later => Err(Unavailable::ForNow),
        StreamRefusal::Never => Err(Unavailable::ForGood),
        StreamRefusal::SessionLost => {
            connection.session_lost(generation, &RequestFailure::Refused(refusal));
            Err(Unavailable::ForGood)
        }
    }
}

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamRefusal {
    /// A later request may work.
    Later,
    /// The server has no such stream.
    Never,
    /// The session is lost.
    SessionLost,
}

fn judge(refusal: &RefusedResponse, has_id: bool) -> StreamRefusal {
    match refusal.status.as_u16() {
        _ if has_id && refusal.lost(&Method::GET).is_some() => StreamRefusal::SessionLost,
        408 | 425 | 429 | 500 | 502..=599 => StreamRefusal::Later,
        _ => StreamRefusal::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hyper::StatusCode;

    #[test]
    fn refusal_has_its_meaning() {
        for (status, body, has_id, expected) in [
            (405, "", true, StreamRefusal::Never),
            (404, "Session not found", true, StreamRefusal::SessionLost),
            (404, "Session not found", false, StreamRefusal::Never),
            (404, "", true, StreamRefusal::Never),
            (400, "No valid session ID", true, StreamRefusal::SessionLost),
            (400, "?", true, StreamRefusal::Never),
            (401, "", true, StreamRefusal::Never),
            (501, "", true, StreamRefusal::Never),
            (503, "", true, StreamRefusal::Later),
            (429, "", false, StreamRefusal::Later),
            (200, "text", true, StreamRefusal::Never),
        ] {
            let refusal = RefusedResponse {
                status: StatusCode::from_u16(status).expect("a status"),
                body: Bytes::from_static(body.as_bytes()),
            };
            assert_eq!(judge(&refusal, has_id), expected, "{status} {body}");
        }
    }
}
