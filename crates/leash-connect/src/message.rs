//! A line of the host, with the facts that decide when and how leash sends it upstream.

use bytes::Bytes;
use hyper::Method;
use serde_json::value::RawValue;

use leash_protocol::envelope::{Envelope, EnvelopeKind, IdKey, Malformed, Message};
use leash_protocol::era::{self, Era};

/// One line on its way upstream. The line itself is never changed.
#[derive(Clone, Debug)]
pub(crate) struct HostMessage {
    /// The number of the line among all lines of the host, from 0.
    pub(crate) number: u64,
    /// The bytes to send.
    pub(crate) line: Bytes,
    /// The kind of line.
    pub(crate) kind: MessageKind,
    /// The era that the message claims. Without a claim it is legacy.
    pub(crate) era: Era,
    /// The requests in the line. Each needs a response.
    pub(crate) requests: Vec<PendingRequest>,
    /// It was sent before, in a session that the upstream had lost.
    pub(crate) repeated: bool,
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Opens a legacy session. leash sends nothing else until it is answered.
    Initialize,
    /// `notifications/initialized`: from here on the server may send messages of its own.
    Initialized,
    /// Any other request, or a batch with requests in it.
    Request,
    /// A modern `subscriptions/listen`: a request whose response may never come.
    Subscription,
    /// Cancels a request.
    Cancel(IdKey),
    /// Answers a request of the server.
    Response,
    /// A notification, a batch without requests, or JSON that is not a known message.
    Notification,
}

impl MessageKind {
    /// True if it needs a response.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self, MessageKind::Initialize | MessageKind::Request | MessageKind::Subscription)
    }

    /// True if it may overtake requests that wait for the limit in flight: the requests in flight may depend on it.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, MessageKind::Cancel(_) | MessageKind::Response)
    }
}

/// An unanswered request.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    /// The id as the host wrote it.
    pub(crate) id: Box<RawValue>,
    /// The id in the form for comparison.
    pub(crate) key: IdKey,
    /// It is a modern `tools/list`, whose response names the arguments that leash repeats as headers.
    pub(crate) lists_tools: bool,
}

impl HostMessage {
    /// Reads a line. Returns an error if it is not JSON. leash forwards JSON that is not a message: the upstream
    /// decides about it.
    pub(crate) fn read(number: u64, line: Bytes) -> Result<HostMessage, Malformed> {
        let read =
            |kind, era, requests| HostMessage { number, line: line.clone(), kind, era, requests, repeated: false };
        match Message::read(&line) {
            Ok(message) => {
                let era = era::classify(&Method::POST, None, Some(&message));
                let requests = message.envelopes().iter().filter_map(|envelope| pending(envelope, era)).collect();
                Ok(read(kind_of(&message, era), era, requests))
            }
            Err(error @ Malformed::Json(_)) => Err(error),
            Err(Malformed::NotAMessage(_) | Malformed::EmptyBatch) => {
                Ok(read(MessageKind::Notification, Era::Legacy, Vec::new()))
            }
        }
    }
}

fn kind_of(message: &Message<'_>, era: Era) -> MessageKind {
    let Message::One(envelope) = message else {
        let has_request = message.envelopes().iter().any(|envelope| envelope.kind == EnvelopeKind::Request);
        return if has_request { MessageKind::Request } else { MessageKind::Notification };
    };
    match (envelope.kind, envelope.method.as_deref()) {
        (EnvelopeKind::Request, Some("initialize")) => MessageKind::Initialize,
        (EnvelopeKind::Request, Some("subscriptions/listen")) if era == Era::Modern => MessageKind::Subscription,
        (EnvelopeKind::Request, _) => MessageKind::Request,
        (EnvelopeKind::Notification, Some("notifications/initialized")) => MessageKind::Initialized,
        (EnvelopeKind::Notification, _) => match envelope.cancelled().and_then(IdKey::of) {
            Some(key) => MessageKind::Cancel(key),
            None => MessageKind::Notification,
        },
        (EnvelopeKind::Response, _) => MessageKind::Response,
    }
}

fn pending(envelope: &Envelope<'_>, era: Era) -> Option<PendingRequest> {
    if envelope.kind != EnvelopeKind::Request {
        return None;
    }
    let lists_tools = era == Era::Modern && envelope.method.as_deref() == Some("tools/list");
    Some(PendingRequest { id: envelope.id?.to_owned(), key: envelope.key()?, lists_tools })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, kind: MessageKind, era: Era, requests: &[&str]) {
        let message = HostMessage::read(0, Bytes::copy_from_slice(line.as_bytes())).expect("JSON");
        let ids: Vec<&str> = message.requests.iter().map(|request| request.id.get()).collect();
        assert_eq!((message.kind, message.era, &ids[..]), (kind, era, requests), "{line}");
        assert_eq!(message.line, line);
    }

    #[test]
    fn line_has_its_kind_era_and_requests() {
        use Era::{Legacy, Modern};
        check(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#, MessageKind::Initialize, Legacy, &["0"]);
        check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, MessageKind::Initialized, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#, MessageKind::Request, Legacy, &[r#""a""#]);
        check(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, MessageKind::Notification, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, MessageKind::Response, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, MessageKind::Response, Legacy, &[]);
        check(
            r#"[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","id":8,"method":"ping"}]"#,
            MessageKind::Request,
            Legacy,
            &["7", "8"],
        );
        check(r#"[{"jsonrpc":"2.0","method":"x"}]"#, MessageKind::Notification, Legacy, &[]);
        let key = IdKey::from_number(7);
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            MessageKind::Cancel(key),
            Legacy,
            &[],
        );
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
            MessageKind::Notification,
            Legacy,
            &[],
        );
        let modern = |method| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
            )
        };
        check(&modern("server/discover"), MessageKind::Request, Modern, &["1"]);
        check(&modern("subscriptions/listen"), MessageKind::Subscription, Modern, &["1"]);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#, MessageKind::Request, Legacy, &["1"]);
    }

    #[test]
    fn json_that_is_not_a_message_counts_as_a_notification() {
        for line in ["[]", "1", r#"{"id":1}"#, r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#] {
            check(line, MessageKind::Notification, Era::Legacy, &[]);
        }
    }

    #[test]
    fn line_that_is_not_json_is_an_error() {
        for line in ["", "{", "hello", "{\"jsonrpc\":\"2.0\"", "\u{fffd}"] {
            assert!(HostMessage::read(0, Bytes::copy_from_slice(line.as_bytes())).is_err(), "{line}");
        }
    }
}
