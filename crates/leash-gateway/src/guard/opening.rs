//! Reads the response to `initialize` while it passes: did the server agree, and on which version?

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::CONTENT_ENCODING;

use super::stream::{Cut, Until, passed};
use super::{forward, holding};
use crate::metrics::Counters;
use crate::state::gateway::Gateway;
use crate::state::session::{InFlight, Session};
use leash_model::limits;
use leash_model::receipt::Reason;
use leash_protocol::envelope::{EnvelopeKind, Message};
use leash_protocol::headers;
use leash_protocol::sse::Splitter;
use leash_upstream::body::BodyError;

/// The server's response to `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The server agreed. The version is known if leash could read the response.
    Agreed(Option<String>),
    /// The server responded with an error.
    Refused,
    /// The stream ended before the response, but the client can resume it: the response will come on another
    /// connection.
    Later,
    /// The server did not respond.
    None,
}

/// Reads a copy of the response as it arrives.
pub(super) struct Reader {
    form: Form,
    /// An event had an id, so a client may resume the stream.
    resumable: bool,
}

enum Form {
    Json(BytesMut),
    Events(Box<Splitter>),
    /// A form that leash cannot read.
    Other,
}

impl Reader {
    pub(super) fn new(headers: &HeaderMap) -> Reader {
        let encoded =
            headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let form = match () {
            // leash asked for no encoding. The server encoded the body anyway, and the client may be able to decode it.
            () if encoded => Form::Other,
            () if forward::is_event_stream(headers) => Form::Events(Box::new(Splitter::new(limits::INITIALIZE_ANSWER))),
            () if headers::is_json(headers) => Form::Json(BytesMut::new()),
            () => Form::Other,
        };
        Reader { form, resumable: false }
    }

    /// Reads the next bytes of the body. Returns the server's response once it is known.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Word> {
        match &mut self.form {
            Form::Other => Some(Word::Agreed(None)),
            Form::Json(text) if text.len() + bytes.len() > limits::INITIALIZE_ANSWER => Some(Word::Agreed(None)),
            Form::Json(text) => {
                text.extend_from_slice(bytes);
                None
            }
            Form::Events(splitter) => {
                splitter.push(bytes);
                while let Some(event) = splitter.next_event() {
                    let Ok(event) = event else { return Some(Word::Agreed(None)) };
                    self.resumable |= event.id().is_some_and(|id| !id.is_empty());
                    if let Some(word) = event.data().and_then(|data| word(&data)) {
                        return Some(word);
                    }
                }
                None
            }
        }
    }

    /// Call when the body has ended. Returns the server's response.
    pub(super) fn finish(&mut self) -> Word {
        match &mut self.form {
            Form::Other => Word::Agreed(None),
            Form::Json(text) => word(text).unwrap_or(Word::None),
            Form::Events(splitter) => {
                let last = splitter.finish().and_then(Result::ok).and_then(|event| event.data());
                let without = if self.resumable { Word::Later } else { Word::None };
                last.and_then(|data| word(&data)).unwrap_or(without)
            }
        }
    }
}

/// Reads the response in a message, if there is one.
fn word(message: &[u8]) -> Option<Word> {
    let message = Message::read(message).ok()?;
    let response = message.envelopes().iter().find(|envelope| envelope.kind == EnvelopeKind::Response)?;
    match response.result {
        Some(_) => Some(Word::Agreed(response.result_protocol_version().map(|version| version.into_owned()))),
        None => Some(Word::Refused),
    }
}

/// The body of the response to `initialize`, on its way to the client.
pub(super) struct Opening {
    body: Incoming,
    /// Present until the server's response is known.
    reader: Option<Reader>,
    gateway: Rc<Gateway>,
    counters: Rc<Counters>,
    flight: InFlight,
    /// Cuts the body off when the session ends. `None` for a refusal: it ends the session too, but is passed on whole.
    cut: Option<Cut>,
}

impl Opening {
    pub(super) fn new(body: Incoming, headers: &HeaderMap, gateway: &Rc<Gateway>, session: &Rc<Session>) -> Opening {
        let (counters, reader) = (gateway.metrics.of(&session.server.bucket), Some(Reader::new(headers)));
        let (flight, cut) = (session.began(), Some(Cut::new(Until::Session(session.began()))));
        Opening { body, reader, gateway: Rc::clone(gateway), counters, flight, cut }
    }

    /// The server has refused: the whole body is passed on.
    pub(super) fn refused(mut self) -> Opening {
        self.cut = None;
        self
    }

    fn read(&mut self, frame: Option<&Result<Frame<Bytes>, BodyError>>) {
        let Some(reader) = &mut self.reader else { return };
        let word = match frame {
            Some(Ok(frame)) => match frame.data_ref().and_then(|bytes| reader.push(bytes)) {
                None if self.body.is_end_stream() => reader.finish(),
                None => return,
                Some(word) => word,
            },
            Some(Err(_)) | None => reader.finish(),
        };
        self.reader = None;
        if matches!(word, Word::Refused | Word::None) {
            self.cut = None;
        }
        hear(&self.gateway, &self.flight.session, word);
    }
}

/// Opens or ends the session, depending on the server's response.
fn hear(gateway: &Gateway, session: &Rc<Session>, word: Word) {
    match word {
        Word::Agreed(version) => {
            if let (Some(upstream), Some(version)) = (holding::of(session), version) {
                upstream.agreed(gateway, session, &version);
            }
            session.opened();
        }
        Word::Later => session.opened(),
        Word::Refused | Word::None => session.end(Reason::NotInitialized),
    }
}

impl Drop for Opening {
    /// Ends the session if the client left before it had the response: the client does not know of the session.
    fn drop(&mut self) {
        if self.reader.is_some() {
            self.flight.session.end(Reason::ClientLeft);
        }
    }
}

impl HttpBody for Opening {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            let frame = frame.map(|frame| passed(frame, &this.counters));
            this.read(frame.as_ref());
            return Poll::Ready(frame);
        }
        let Some(cut) = &mut this.cut else { return Poll::Pending };
        ready!(cut.poll(cx));
        // An error, so that the client does not take the body for complete. The server will not respond any more.
        Poll::Ready(Some(Err("the session ended before the server had answered".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, HeaderValue};

    const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#;
    const ERROR: &str = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}"#;

    /// Reads the body as a whole and byte by byte.
    fn check(kind: &'static str, body: &str, expected: Word) {
        for size in [body.len().max(1), 1] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let mut reader = Reader::new(&headers);
            let word = body.as_bytes().chunks(size).find_map(|bytes| reader.push(bytes));
            assert_eq!(word.unwrap_or_else(|| reader.finish()), expected, "{kind} {body}");
        }
    }

    #[test]
    fn reads_json_responses() {
        let version = || Some("2025-06-18".to_owned());
        check("application/json", RESULT, Word::Agreed(version()));
        check("application/json; charset=utf-8", &format!("[{RESULT}]"), Word::Agreed(version()));
        check("application/json", ERROR, Word::Refused);
        check("application/json", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#, Word::Agreed(None));
        check("application/json", "", Word::None);
        check("application/json", "{", Word::None);
        check("text/plain", "fine", Word::Agreed(None));
    }

    #[test]
    fn reads_event_streams() {
        let version = || Some("2025-06-18".to_owned());
        check("text/event-stream", &format!("data: {RESULT}\n\n"), Word::Agreed(version()));
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        let ping = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
        let before = format!(": hello\n\nid: 1\ndata:\n\ndata: {log}\n\ndata: {ping}\n\n");
        check("text/event-stream", &format!("{before}event: message\ndata: {RESULT}\n\n"), Word::Agreed(version()));
        check("text/event-stream", &format!("{before}data: {ERROR}\n\n"), Word::Refused);
        // The stream ended early. An event had an id, so a client can resume it.
        check("text/event-stream", &before, Word::Later);
        check("text/event-stream", &format!("data: {log}\n\n"), Word::None);
    }
}
