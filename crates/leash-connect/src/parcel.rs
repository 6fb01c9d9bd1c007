//! A line of the host, as far as it matters when and how it goes upstream.

use bytes::Bytes;
use hyper::Method;
use serde_json::value::RawValue;

use leash_protocol::envelope::{Envelope, IdKey, Kind, Malformed, Message};
use leash_protocol::era;
use leash_protocol::era::Era;

/// One line on its way upstream. The line itself is never changed.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// Its place among all lines of the host, from 0.
    pub(crate) number: u64,
    /// What is sent.
    pub(crate) line: Bytes,
    /// What it is.
    pub(crate) what: What,
    /// By its own claims; a message that makes none is legacy here.
    pub(crate) era: Era,
    /// The requests in it, which want an answer each.
    pub(crate) asks: Vec<Ask>,
    /// It was sent before, to a session that was lost.
    pub(crate) repeated: bool,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Opens a legacy session; nothing else is sent until it is answered.
    Initialize,
    /// `notifications/initialized`: from here on the server may speak first.
    Initialized,
    /// Any other request, or a batch with requests in it.
    Request,
    /// A modern `subscriptions/listen`: a request whose answer may never come.
    Listen,
    /// Takes a request back.
    Cancel(IdKey),
    /// Answers a request of the server.
    Response,
    /// A notification, a batch without requests, or JSON that leash makes nothing of.
    Notice,
}

impl What {
    /// Whether it wants an answer.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self, What::Initialize | What::Request | What::Listen)
    }

    /// Whether it may pass requests that have to wait for others to be answered: those others may be waiting for it.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, What::Cancel(_) | What::Response)
    }
}

/// A request that was not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The id as the host wrote it.
    pub(crate) id: Box<RawValue>,
    /// The id as it is compared.
    pub(crate) key: IdKey,
    /// It is a modern `tools/list`, whose answer names the arguments that are repeated as headers.
    pub(crate) lists_tools: bool,
}

impl Parcel {
    /// Reads a line. The error is for lines that are not JSON at all; JSON that is no message is the upstream's to judge.
    pub(crate) fn read(number: u64, line: Bytes) -> Result<Parcel, Malformed> {
        let parcel = |what, era, asks| Parcel { number, line: line.clone(), what, era, asks, repeated: false };
        match Message::read(&line) {
            Ok(message) => {
                let era = era::classify(&Method::POST, None, Some(&message));
                let asks = message.envelopes().iter().filter_map(|envelope| ask(envelope, era)).collect();
                Ok(parcel(what(&message, era), era, asks))
            }
            Err(error @ Malformed::Json(_)) => Err(error),
            Err(Malformed::NotAMessage(_) | Malformed::EmptyBatch) => Ok(parcel(What::Notice, Era::Legacy, Vec::new())),
        }
    }
}

fn what(message: &Message<'_>, era: Era) -> What {
    let Message::One(envelope) = message else {
        let asks = message.envelopes().iter().any(|envelope| envelope.kind == Kind::Request);
        return if asks { What::Request } else { What::Notice };
    };
    match (envelope.kind, envelope.method.as_deref()) {
        (Kind::Request, Some("initialize")) => What::Initialize,
        (Kind::Request, Some("subscriptions/listen")) if era == Era::Modern => What::Listen,
        (Kind::Request, _) => What::Request,
        (Kind::Notification, Some("notifications/initialized")) => What::Initialized,
        (Kind::Notification, _) => match envelope.cancelled().and_then(IdKey::of) {
            Some(key) => What::Cancel(key),
            None => What::Notice,
        },
        (Kind::Response, _) => What::Response,
    }
}

fn ask(envelope: &Envelope<'_>, era: Era) -> Option<Ask> {
    if envelope.kind != Kind::Request {
        return None;
    }
    let lists_tools = era == Era::Modern && envelope.method.as_deref() == Some("tools/list");
    Some(Ask { id: envelope.id?.to_owned(), key: envelope.key()?, lists_tools })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, what: What, era: Era, asks: &[&str]) {
        let parcel = Parcel::read(0, Bytes::copy_from_slice(line.as_bytes())).expect("JSON");
        let ids: Vec<&str> = parcel.asks.iter().map(|ask| ask.id.get()).collect();
        assert_eq!((parcel.what, parcel.era, &ids[..]), (what, era, asks), "{line}");
        assert_eq!(parcel.line, line);
    }

    #[test]
    fn what_lines_are() {
        use Era::{Legacy, Modern};
        check(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#, What::Initialize, Legacy, &["0"]);
        check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, What::Initialized, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#, What::Request, Legacy, &[r#""a""#]);
        check(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, What::Notice, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, What::Response, Legacy, &[]);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, What::Response, Legacy, &[]);
        check(
            r#"[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","id":8,"method":"ping"}]"#,
            What::Request,
            Legacy,
            &["7", "8"],
        );
        check(r#"[{"jsonrpc":"2.0","method":"x"}]"#, What::Notice, Legacy, &[]);
        let key = IdKey::from_number(7);
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            What::Cancel(key),
            Legacy,
            &[],
        );
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
            What::Notice,
            Legacy,
            &[],
        );
        let modern = |method| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
            )
        };
        check(&modern("server/discover"), What::Request, Modern, &["1"]);
        check(&modern("subscriptions/listen"), What::Listen, Modern, &["1"]);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#, What::Request, Legacy, &["1"]);
    }

    #[test]
    fn what_is_json_but_no_message_is_passed_on() {
        for line in ["[]", "1", r#"{"id":1}"#, r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#] {
            check(line, What::Notice, Era::Legacy, &[]);
        }
    }

    #[test]
    fn what_is_no_json_is_not() {
        for line in ["", "{", "hello", "{\"jsonrpc\":\"2.0\"", "\u{fffd}"] {
            assert!(Parcel::read(0, Bytes::copy_from_slice(line.as_bytes())).is_err(), "{line}");
        }
    }
}
