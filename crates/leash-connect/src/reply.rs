//! What an answer of the upstream means, and what the host is told when it is none. Pure.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};

use super::parcel::Ask;
use leash_model::limits;
use leash_protocol::envelope::{Envelope, IdKey, Kind, Message, codes, error_body};
use leash_upstream::client::UpstreamError;
use leash_upstream::delete::says_unknown;

/// What the head of an answer announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// One message, or nothing at all.
    Whole,
    /// A stream of messages.
    Stream,
    /// No success.
    Refused,
}

impl Reply {
    /// By status and type.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Reply {
        match status.is_success() {
            true if is_stream(headers) => Reply::Stream,
            true => Reply::Whole,
            false => Reply::Refused,
        }
    }
}

/// Whether a body is an event stream.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// An answer that is no success.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// What can be read of its body.
    pub(crate) body: Bytes,
}

impl Refusal {
    /// Whether it says that the session of the request is not known any more. 404 is the rule; older servers say 400 and words.
    pub(crate) fn forgets_session(&self) -> bool {
        let unknown_method = self.error().is_some_and(|(_, code)| code == codes::METHOD_NOT_FOUND);
        (self.status == StatusCode::NOT_FOUND && !unknown_method)
            || (self.status == StatusCode::BAD_REQUEST && says_unknown(&self.body))
    }

    /// Whether a server of the old transport may be behind it: then a GET will show.
    pub(crate) fn may_be_old(&self) -> bool {
        let status = matches!(self.status.as_u16(), 400 | 404 | 405);
        status && !self.error().is_some_and(|(_, code)| is_modern(self.status, code))
    }

    /// The id and the code of the JSON-RPC error in its body.
    fn error(&self) -> Option<(Option<IdKey>, i64)> {
        let message = Message::read(&self.body).ok()?;
        let envelope = error_in(&message)?;
        Some((envelope.key(), envelope.error_code()?))
    }

    /// The line that answers a request which was refused: the upstream's own error where it has one.
    pub(crate) fn answer(&self, ask: &Ask) -> Vec<u8> {
        if let Ok(message) = Message::read(&self.body)
            && let Some(envelope) = error_in(&message)
        {
            match (envelope.key(), envelope.error) {
                (Some(key), _) if key == ask.key => return one_line(&self.body),
                // It answers no request in particular; over HTTP there is only one that it can mean. What leash can say
                // about these statuses helps more.
                (None, Some(error)) if !self.is_ours_to_explain() => {
                    let (id, error) =
                        (ask.id.get(), String::from_utf8_lossy(&one_line(error.get().as_bytes())).into_owned());
                    return format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes();
                }
                _ => {}
            }
        }
        error_body(Some(&ask.id), codes::SERVER, &self.to_string(), None)
    }

    fn is_ours_to_explain(&self) -> bool {
        matches!(self.status.as_u16(), 401 | 403 | 407 | 500..)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let advice = match self.status.as_u16() {
            401 | 407 => "pass credentials with `--bearer-env` or `--header`",
            403 => "the credentials are not enough, or the server does not accept this client",
            404 => "check the path of the URL",
            405 => "this is not the address of an MCP server, or it speaks another transport (`--transport`)",
            300..=399 => "it points to another server; use that URL",
            429 => "it is asked too often; try again later",
            500.. => "the server has a problem; try again later",
            _ => "the server does not accept the message",
        };
        write!(f, "upstream answered {}: {advice}", self.status)
    }
}

/// The error in a message that is one.
fn error_in<'a>(message: &'a Message<'a>) -> Option<&'a Envelope<'a>> {
    match message {
        Message::One(envelope) if envelope.kind == Kind::Response && envelope.error.is_some() => Some(envelope),
        Message::One(_) | Message::Batch(_) => None,
    }
}

/// Whether an error is one that only a server of the modern era answers.
fn is_modern(status: StatusCode, code: i64) -> bool {
    match code {
        codes::HEADER_MISMATCH | codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION => true,
        codes::METHOD_NOT_FOUND => status == StatusCode::NOT_FOUND,
        _ => false,
    }
}

/// Why a request gets no answer from the upstream.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// No connection, or it broke before the answer began.
    Wire(UpstreamError),
    /// Refused.
    Refused(Refusal),
    /// The stream broke off, and can't be taken up again.
    Cut,
    /// The answer is more than a host can be given.
    TooLarge,
    /// It took too long to begin the session.
    Late,
    /// There was an answer, but none to the request.
    Nothing,
    /// There was an answer, but it is no MCP.
    Garbage,
    /// The session is lost, and was not to be opened anew.
    Lost,
    /// The old transport's stream is closed.
    Closed,
    /// The `endpoint` of the old transport is missing, or leads elsewhere.
    Endpoint,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Wire(error @ (UpstreamError::Broken(_) | UpstreamError::Unusable { .. })) => {
                write!(f, "{error}; the request may have been carried out")
            }
            Trouble::Wire(error) => write!(f, "cannot reach upstream: {error}; is the server running?"),
            Trouble::Refused(refusal) => refusal.fmt(f),
            Trouble::Cut => {
                f.write_str("the connection to upstream broke before the response; it may have been carried out")
            }
            Trouble::TooLarge => write!(f, "upstream's answer has more than {} bytes; it is left out", limits::LINE),
            Trouble::Late => f.write_str("upstream did not answer `initialize` in time"),
            Trouble::Nothing => f.write_str("upstream accepted the request, but did not answer it"),
            Trouble::Garbage => f.write_str("upstream answered with something that is not MCP; check the URL"),
            Trouble::Lost => f.write_str("upstream has lost the session; start the server again (--no-revive)"),
            Trouble::Closed => f.write_str("upstream closed the connection that was the session"),
            Trouble::Endpoint => f.write_str("upstream did not name an endpoint of its own; check the URL"),
        }
    }
}

impl Trouble {
    /// The line that answers a request.
    pub(crate) fn answer(&self, ask: &Ask) -> Vec<u8> {
        match self {
            Trouble::Refused(refusal) => refusal.answer(ask),
            _ => error_body(Some(&ask.id), codes::SERVER, &self.to_string(), None),
        }
    }
}

/// A message as one line: line breaks around it are dropped, those inside are whitespace between tokens and become spaces, since
/// no string of JSON can contain one. No other byte is touched.
pub(crate) fn one_line(message: &[u8]) -> Vec<u8> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let begin = message.iter().position(|byte| !is_break(byte)).unwrap_or(message.len());
    let end = message.iter().rposition(|byte| !is_break(byte)).map_or(begin, |last| last + 1);
    // One more for the newline that follows.
    let mut line = Vec::with_capacity(end - begin + 1);
    line.extend_from_slice(&message[begin..end]);
    if memchr::memchr2(b'\n', b'\r', &line).is_some() {
        line.iter_mut().filter(|byte| is_break(byte)).for_each(|byte| *byte = b' ');
    }
    line
}

#[cfg(test)]
mod tests;
