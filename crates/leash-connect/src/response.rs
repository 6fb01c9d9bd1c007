//! Classifies the upstream's responses and writes the error messages for the host. Pure.

use bytes::Bytes;
use hyper::{HeaderMap, Method, StatusCode};
use thiserror::Error;

use crate::message::PendingRequest;
use leash_model::limits;
use leash_protocol::envelope::{Envelope, EnvelopeKind, Message, codes, error_body};
use leash_protocol::headers::is_event_stream;
use leash_upstream::client::UpstreamError;
use leash_upstream::lost::{Lost, lost};

/// The kind of a response, from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// One message, or nothing at all.
    Whole,
    /// A stream of messages.
    Stream,
    /// A status that is not a success.
    Refused,
}

impl ResponseKind {
    /// Classifies a response by its status and content type.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> ResponseKind {
        match status.is_success() {
            true if is_event_stream(headers) => ResponseKind::Stream,
            true => ResponseKind::Whole,
            false => ResponseKind::Refused,
        }
    }
}

/// A response whose status is not a success.
#[derive(Clone, Debug)]
pub(crate) struct RefusedResponse {
    pub(crate) status: StatusCode,
    /// The body, as far as leash could read it.
    pub(crate) body: Bytes,
}

impl RefusedResponse {
    /// Decides whether the server has lost the session of the request, which had this method.
    pub(crate) fn lost(&self, method: &Method) -> Option<Lost> {
        lost(method, self.status, &self.body)
    }

    /// True if the server may speak HTTP+SSE. A GET will show it.
    pub(crate) fn may_be_http_sse(&self) -> bool {
        let status = matches!(self.status.as_u16(), 400 | 404 | 405);
        status && !self.error_code().is_some_and(|code| is_modern(self.status, code))
    }

    /// The code of the JSON-RPC error in its body.
    fn error_code(&self) -> Option<i64> {
        error_in(&Message::read(&self.body).ok()?)?.error_code()
    }

    /// Returns the line that answers a refused request: the upstream's own error, if there is one.
    pub(crate) fn answer(&self, request: &PendingRequest) -> Vec<u8> {
        if let Ok(message) = Message::read(&self.body)
            && let Some(envelope) = error_in(&message)
        {
            match (envelope.key(), envelope.error) {
                (Some(key), _) if key == request.key => return one_line(&self.body),
                // The error has no id; over HTTP it can only be about this request. For the statuses that leash
                // explains itself, leash's own text helps more.
                (None, Some(error)) if !self.is_ours_to_explain() => {
                    let (id, error) =
                        (request.id.get(), String::from_utf8_lossy(&one_line(error.get().as_bytes())).into_owned());
                    return format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes();
                }
                _ => {}
            }
        }
        error_body(Some(&request.id), codes::SERVER, &self.to_string(), None)
    }

    fn is_ours_to_explain(&self) -> bool {
        matches!(self.status.as_u16(), 401 | 403 | 407 | 500..)
    }
}

impl std::fmt::Display for RefusedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let advice = match self.status.as_u16() {
            401 | 407 => "pass credentials with `--bearer-env` or `--header`",
            403 => "the credentials are not enough, or the server does not accept this client",
            404 => "check the path of the URL",
            405 => "this is not the address of an MCP server, or it speaks another transport (`--transport`)",
            300..=399 => "it points to another server; use that URL",
            429 => "the server got too many requests; try again later",
            500.. => "the server has a problem; try again later",
            _ => "the server does not accept the message",
        };
        write!(f, "the upstream server answered {}: {advice}", self.status)
    }
}

/// Returns the envelope of a message that is an error.
fn error_in<'a>(message: &'a Message<'a>) -> Option<&'a Envelope<'a>> {
    match message {
        Message::One(envelope) if envelope.kind == EnvelopeKind::Response && envelope.error.is_some() => Some(envelope),
        Message::One(_) | Message::Batch(_) => None,
    }
}

/// True if only a server of the modern era responds with this error.
fn is_modern(status: StatusCode, code: i64) -> bool {
    match code {
        codes::HEADER_MISMATCH | codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION => true,
        codes::METHOD_NOT_FOUND => status == StatusCode::NOT_FOUND,
        _ => false,
    }
}

/// The reason why a request gets no response from the upstream.
#[derive(Clone, Debug, Error)]
pub(crate) enum RequestFailure {
    /// There was no connection, or it broke before the response began.
    #[error("{}", error.explain(server))]
    Http {
        /// The upstream's address, as it may be shown.
        server: String,
        /// The reason.
        error: UpstreamError,
    },
    /// The upstream refused the request.
    #[error("{0}")]
    Refused(RefusedResponse),
    /// The stream broke and cannot be resumed.
    #[error(
        "the connection to the upstream server broke before the response; the request may have been carried out: look before you repeat it"
    )]
    StreamBroke,
    /// The response is larger than the limit for a line.
    #[error("the upstream server's answer has more than {} bytes, and leash dropped it; ask for less", limits::LINE)]
    TooLarge,
    /// The upstream did not answer `initialize` in time.
    #[error("the upstream server did not answer `initialize` in time; look at the server's log")]
    InitializeTimeout,
    /// The upstream responded, but did not answer the request.
    #[error("the upstream server accepted the request, but did not answer it; look at the server's log")]
    NotAnswered,
    /// The upstream's response is not MCP.
    #[error("the upstream server answered with something that is not MCP; check the URL")]
    NotMcp,
    /// The upstream has lost the session, and leash may not open it anew.
    #[error("the upstream server has lost the session; start the server again (--no-revive)")]
    SessionLost,
    /// The upstream closed the stream of HTTP+SSE.
    #[error("the upstream server closed the connection that was the session; repeat the request in a new session")]
    StreamClosed,
    /// The `endpoint` of HTTP+SSE is missing or at another server.
    #[error("the upstream server did not name an endpoint of its own; check the URL")]
    NoEndpoint,
}

impl RequestFailure {
    /// Returns the line that answers a request.
    pub(crate) fn answer(&self, request: &PendingRequest) -> Vec<u8> {
        match self {
            RequestFailure::Refused(refusal) => refusal.answer(request),
            _ => error_body(Some(&request.id), codes::SERVER, &self.to_string(), None),
        }
    }
}

/// Returns a message as one line. Line breaks around it are dropped. Line breaks inside become spaces: they are
/// whitespace between tokens, because a JSON string cannot contain one. No other byte changes.
pub(crate) fn one_line(message: &[u8]) -> Vec<u8> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let begin = message.iter().position(|byte| !is_break(byte)).unwrap_or(message.len());
    let end = message.iter().rposition(|byte| !is_break(byte)).map_or(begin, |last| last + 1);
    // One more byte for the newline that follows.
    let mut line = Vec::with_capacity(end - begin + 1);
    line.extend_from_slice(&message[begin..end]);
    if memchr::memchr2(b'\n', b'\r', &line).is_some() {
        line.iter_mut().filter(|byte| is_break(byte)).for_each(|byte| *byte = b' ');
    }
    line
}

#[cfg(test)]
mod tests;
