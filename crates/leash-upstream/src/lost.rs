//! The responses by which a server shows that it has lost a session. `leash serve` and `leash connect` decide by the
//! same rules; each opens the session again in its own way.

use hyper::{Method, StatusCode};

use crate::delete::says_unknown;
use leash_protocol::envelope::{Message, codes};

/// A session that a server has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// By the protocol, the session is over (404).
    Forgotten,
    /// Only the text says so (400, from older servers). The session may still exist, so it needs a DELETE.
    Doubtful,
}

/// Decides whether the response to a request in a session says that the server has lost the session. A body that could
/// not be read counts as empty.
pub fn lost(method: &Method, status: StatusCode, body: &[u8]) -> Option<Lost> {
    match status {
        // The server may have no route for GET. It does have one for POST, because it answered `initialize`.
        StatusCode::NOT_FOUND if *method == Method::GET && !says_unknown(body) => None,
        // Modern servers respond 404 to a method that they do not know.
        StatusCode::NOT_FOUND if says_no_such_method(body) => None,
        StatusCode::NOT_FOUND => Some(Lost::Forgotten),
        StatusCode::BAD_REQUEST if says_unknown(body) => Some(Lost::Doubtful),
        _ => None,
    }
}

fn says_no_such_method(body: &[u8]) -> bool {
    let message = Message::read(body);
    let envelopes = message.as_ref().map(Message::envelopes).unwrap_or_default();
    envelopes.iter().any(|envelope| envelope.error_code() == Some(codes::METHOD_NOT_FOUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_text_show_a_lost_session() {
        let no_method = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#;
        let unknown = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
        for (method, status, body, expected) in [
            (Method::POST, 404, "", Some(Lost::Forgotten)),
            (Method::POST, 404, "<pre>Cannot POST /mcp</pre>", Some(Lost::Forgotten)),
            (Method::POST, 404, unknown, Some(Lost::Forgotten)),
            (Method::POST, 404, no_method, None),
            (Method::POST, 400, unknown, Some(Lost::Doubtful)),
            (Method::POST, 400, "No valid session ID", Some(Lost::Doubtful)),
            (Method::POST, 400, "", None),
            (Method::POST, 405, unknown, None),
            (Method::POST, 500, unknown, None),
            (Method::POST, 200, unknown, None),
            (Method::GET, 404, "", None),
            (Method::GET, 404, "<pre>Cannot GET /mcp</pre>", None),
            (Method::GET, 404, unknown, Some(Lost::Forgotten)),
            (Method::GET, 400, unknown, Some(Lost::Doubtful)),
            (Method::GET, 400, "", None),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(lost(&method, status, body.as_bytes()), expected, "{method} {status} {body}");
        }
    }
}
