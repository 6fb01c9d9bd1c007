//! Reads the response to `initialize` while it passes: did the server agree, and on which version?

use std::task::{Context, Poll, ready};
use std::{pin::Pin, rc::Rc};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, header::CONTENT_ENCODING};

use super::holding;
use super::stream::{CutOff, ResponseLimit, poll_passed};
use crate::state::session::{ClientSession, InFlight};
use crate::{metrics::Counters, state::gateway::Gateway};
use leash_model::{limits, receipt::Reason};
use leash_protocol::envelope::{EnvelopeKind, Message};
use leash_protocol::{headers, sse::Splitter};
use leash_upstream::body::BodyError;

/// The server's response to `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InitializeResponse {
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
pub(super) struct InitializeReader {
    form: BodyForm,
    /// An event had an id, so a client may resume the stream.
    resumable: bool,
}

enum BodyForm {
    Json(BytesMut),
    Events(Box<Splitter>),
    /// A form that leash cannot read.
    Other,
}

impl InitializeReader {
    pub(super) fn new(headers: &HeaderMap) -> InitializeReader {
        let encoded =
            headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let form = match () {
            // leash asked for no encoding. The server encoded the body anyway, and the client may be able to decode it.
            () if encoded => BodyForm::Other,
            () if headers::is_event_stream(headers) => {
                BodyForm::Events(Box::new(Splitter::new(limits::INITIALIZE_ANSWER)))
            }
            () if headers::is_json(headers) => BodyForm::Json(BytesMut::new()),
            () => BodyForm::Other,
        };
        InitializeReader { form, resumable: false }
    }

    /// Reads the next bytes of the body. Returns the server's response once it is known.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<InitializeResponse> {
        match &mut self.form {
            BodyForm::Other => Some(InitializeResponse::Agreed(None)),
            BodyForm::Json(text) if text.len() + bytes.len() > limits::INITIALIZE_ANSWER => {
                Some(InitializeResponse::Agreed(None))
            }
            BodyForm::Json(text) => {
                text.extend_from_slice(bytes);
                None
            }
            BodyForm::Events(splitter) => {
                splitter.push(bytes);
                while let Some(event) = splitter.next_event() {
                    let Ok(event) = event else { return Some(InitializeResponse::Agreed(None)) };
                    self.resumable |= event.id().is_some_and(|id| !id.is_empty());
                    if let Some(response) = event.data().and_then(|data| response_in(&data)) {
                        return Some(response);
                    }
                }
                None
            }
        }
    }

    /// Call when the body has ended. Returns the server's response.
    pub(super) fn finish(&mut self) -> InitializeResponse {
        match &mut self.form {
            BodyForm::Other => InitializeResponse::Agreed(None),
            BodyForm::Json(text) => response_in(text).unwrap_or(InitializeResponse::None),
            BodyForm::Events(splitter) => {
                let last = splitter.finish().and_then(Result::ok).and_then(|event| event.data());
                let without = if self.resumable { InitializeResponse::Later } else { InitializeResponse::None };
                last.and_then(|data| response_in(&data)).unwrap_or(without)
            }
        }
    }
}

/// Reads the response in a message, if there is one.
fn response_in(message: &[u8]) -> Option<InitializeResponse> {
    let message = Message::read(message).ok()?;
    let response = message.envelopes().iter().find(|envelope| envelope.kind == EnvelopeKind::Response)?;
    match response.result {
        Some(_) => {
            Some(InitializeResponse::Agreed(response.result_protocol_version().map(|version| version.into_owned())))
        }
        None => Some(InitializeResponse::Refused),
    }
}

/// The body of the response to `initialize`, on its way to the client.
pub(super) struct InitializeBody {
    body: Incoming,
    /// Present until the server's response is known.
    reader: Option<InitializeReader>,
    gateway: Rc<Gateway>,
    counters: Rc<Counters>,
    flight: InFlight,
    /// Cuts the body off when the session ends. `None` for a refusal: it ends the session too, but is passed on whole.
    cut: Option<CutOff>,
}

impl InitializeBody {
    pub(super) fn new(
        body: Incoming,
        headers: &HeaderMap,
        gateway: &Rc<Gateway>,
        session: &Rc<ClientSession>,
    ) -> InitializeBody {
        let (counters, reader) = (gateway.metrics.of(&session.server.bucket), Some(InitializeReader::new(headers)));
        let (flight, cut) = (session.began(), Some(CutOff::new(ResponseLimit::Session(session.began()))));
        InitializeBody { body, reader, gateway: Rc::clone(gateway), counters, flight, cut }
    }

    /// The server has refused: the whole body is passed on.
    pub(super) fn refused(mut self) -> InitializeBody {
        self.cut = None;
        self
    }

    fn read(&mut self, frame: Option<&Result<Frame<Bytes>, BodyError>>) {
        let Some(reader) = &mut self.reader else { return };
        let response = match frame {
            Some(Ok(frame)) => match frame.data_ref().and_then(|bytes| reader.push(bytes)) {
                None if self.body.is_end_stream() => reader.finish(),
                None => return,
                Some(response) => response,
            },
            Some(Err(_)) | None => reader.finish(),
        };
        self.reader = None;
        if matches!(response, InitializeResponse::Refused | InitializeResponse::None) {
            self.cut = None;
        }
        apply_response(&self.gateway, &self.flight.session, response);
    }
}

/// Opens or ends the session, depending on the server's response.
fn apply_response(gateway: &Gateway, session: &Rc<ClientSession>, response: InitializeResponse) {
    match response {
        InitializeResponse::Agreed(version) => {
            if let (Some(upstream), Some(version)) = (holding::of(session), version) {
                upstream.agreed(gateway, session, &version);
            }
            session.opened();
        }
        InitializeResponse::Later => session.opened(),
        InitializeResponse::Refused | InitializeResponse::None => session.end(Reason::NotInitialized),
    }
}

impl Drop for InitializeBody {
    /// Ends the session if the client left before it had the response: the client does not know of the session.
    fn drop(&mut self) {
        if self.reader.is_some() {
            self.flight.session.end(Reason::ClientLeft);
        }
    }
}

impl HttpBody for InitializeBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = poll_passed(&mut this.body, cx, &this.counters) {
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
    fn check(kind: &'static str, body: &str, expected: InitializeResponse) {
        for size in [body.len().max(1), 1] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let mut reader = InitializeReader::new(&headers);
            let response = body.as_bytes().chunks(size).find_map(|bytes| reader.push(bytes));
            assert_eq!(response.unwrap_or_else(|| reader.finish()), expected, "{kind} {body}");
        }
    }

    #[test]
    fn reads_json_responses() {
        let version = || Some("2025-06-18".to_owned());
        check("application/json", RESULT, InitializeResponse::Agreed(version()));
        check("application/json; charset=utf-8", &format!("[{RESULT}]"), InitializeResponse::Agreed(version()));
        check("application/json", ERROR, InitializeResponse::Refused);
        check("application/json", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#, InitializeResponse::Agreed(None));
        check("application/json", "", InitializeResponse::None);
        check("application/json", "{", InitializeResponse::None);
        check("text/plain", "fine", InitializeResponse::Agreed(None));
    }

    #[test]
    fn reads_event_streams() {
        let version = || Some("2025-06-18".to_owned());
        check("text/event-stream", &format!("data: {RESULT}\n\n"), InitializeResponse::Agreed(version()));
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        let ping = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
        let before = format!(": hello\n\nid: 1\ndata:\n\ndata: {log}\n\ndata: {ping}\n\n");
        check(
            "text/event-stream",
            &format!("{before}event: message\ndata: {RESULT}\n\n"),
            InitializeResponse::Agreed(version()),
        );
        check("text/event-stream", &format!("{before}data: {ERROR}\n\n"), InitializeResponse::Refused);
        // The stream ended early. An event had an id, so a client can resume it.
        check("text/event-stream", &before, InitializeResponse::Later);
        check("text/event-stream", &format!("data: {log}\n\n"), InitializeResponse::None);
    }
}
