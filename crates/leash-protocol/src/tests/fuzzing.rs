//! Properties that must hold for any bytes. The fuzz targets and a bounded run in the test suite call the same
//! functions, which panic if a property does not hold.
//!
//! Each property compares with a second implementation that is too simple to be wrong in the same way: it sees all
//! bytes at once, and is not optimized for memory or speed.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::envelope::{Envelope, EnvelopeKind, IdKey, Malformed, Message, Splice};
use super::frame::{Line, Lines};
use super::sse::{self, Event, Splitter, TooLarge};

/// The events of a stream are the same however it is cut, no byte is lost, and their fields are those of the standard.
pub fn sse_splitter(bytes: &[u8]) {
    let (events, rest) = split(usize::MAX, [bytes].into_iter());
    let raw: Vec<u8> = events.iter().flatten().flat_map(|event| event.raw.to_vec()).chain(rest.clone()).collect();
    assert_eq!(raw, bytes, "the events are the stream");
    let fields: Vec<EventFields> = events.iter().flatten().map(EventFields::of).collect();
    assert_eq!(fields, fields_by_the_standard(bytes), "an event has the fields of the standard");

    for limit in [usize::MAX, hash(bytes) as usize % 48] {
        let bounded = |raw: usize| if raw > limit { Err(TooLarge { limit }) } else { Ok(()) };
        let mut expected: Vec<Result<Event, TooLarge>> =
            events.iter().flatten().map(|event| bounded(event.raw.len()).map(|()| event.clone())).collect();
        expected.extend(bounded(rest.len()).err().map(Err));
        let expected_rest = if rest.len() > limit { Vec::new() } else { rest.clone() };
        let expected = (expected, expected_rest);
        assert_eq!(split(limit, bytes.chunks(1)), expected, "byte by byte, limit {limit}");
        assert_eq!(split(limit, pieces(bytes)), expected, "in pieces, limit {limit}");
    }

    let mut encoded = Vec::new();
    sse::encode(&mut encoded, Some("7"), None, bytes);
    let (events, rest) = split(usize::MAX, [&encoded[..]].into_iter());
    let [Ok(event)] = &events[..] else { panic!("not one event: {events:?}") };
    assert_eq!(event.data(), Some(lines(bytes).join(&b'\n')), "an encoded event can be read");
    assert_eq!((event.id().as_deref(), &rest[..]), (Some("7"), &[][..]));
}

/// The lines of a stream are the same however it is cut.
pub fn line_framer(bytes: &[u8]) {
    for limit in [usize::MAX, hash(bytes) as usize % 24] {
        let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // The bytes after the last newline are a line only if there are any.
        if expected.last().is_some_and(|last| last.is_empty()) {
            expected.pop();
        }
        let expected: Vec<Line> = expected
            .into_iter()
            .map(|line| match line {
                line if line.len() > limit => Line::TooLong { length: line.len() },
                [line @ .., b'\r'] => Line::Whole(line.to_vec().into()),
                line => Line::Whole(line.to_vec().into()),
            })
            .collect();
        assert_eq!(framed(limit, [bytes].into_iter()), expected, "at once, limit {limit}");
        assert_eq!(framed(limit, bytes.chunks(1)), expected, "byte by byte, limit {limit}");
        assert_eq!(framed(limit, pieces(bytes)), expected, "in pieces, limit {limit}");
    }
}

/// The reader accepts exactly what is JSON; its results agree with a complete parser; and replacing an id changes no
/// other byte.
pub fn envelope_reader(bytes: &[u8]) {
    let is_json = std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let message = match Message::read(bytes) {
        Err(Malformed::Json(_)) => return assert!(!is_json, "JSON that is refused"),
        read => {
            assert!(is_json, "not JSON, and read");
            read
        }
    };
    // The complete parser rejects deep nesting, huge numbers and half surrogates, which leash must accept.
    let value: Option<Value> = serde_json::from_slice(bytes).ok();
    let Ok(message) = message else {
        assert!(!value.is_some_and(|value| is_surely_a_message(&value)), "a message that is refused");
        return;
    };
    for (at, envelope) in message.envelopes().iter().enumerate() {
        call_every_reader(envelope);
        check_splice(bytes, &message, at);
        if let Some(value) = &value {
            let value = if let Message::Batch(_) = message { &value[at] } else { value };
            check_agreement(envelope, value);
        }
    }
}

/// True if a JSON value has the minimum of a message.
fn is_surely_a_message(value: &Value) -> bool {
    let has_id = value.get("id").is_none_or(|id| id.is_string() || id.is_number());
    let has_body = value["method"].is_string() || value.get("method").is_none() && value.get("result").is_some();
    match value {
        Value::Array(elements) => !elements.is_empty() && elements.iter().all(is_surely_a_message),
        _ => value["jsonrpc"] == "2.0" && has_id && has_body,
    }
}

fn check_agreement(envelope: &Envelope<'_>, value: &Value) {
    let parsed = |raw: &serde_json::value::RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    for (raw, name) in
        [(envelope.id, "id"), (envelope.params, "params"), (envelope.result, "result"), (envelope.error, "error")]
    {
        assert_eq!(raw.and_then(parsed).as_ref(), value.get(name), "`{name}` as a complete parser reads it");
    }
    assert_eq!(envelope.method.as_deref(), value["method"].as_str(), "`method` as a complete parser reads it");
    if let Some(Value::String(id)) = value.get("id") {
        let plain = serde_json::value::to_raw_value(id).expect("a string");
        assert_eq!(envelope.key(), IdKey::of(&plain));
    }
    let meta = envelope.meta();
    assert_eq!(meta.present, value["params"]["_meta"].is_object());
    let version = &value["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    assert_eq!(meta.protocol_version.as_deref(), version.as_str(), "the version as a complete parser reads it");
    if let Some(field) = envelope.target_field() {
        assert_eq!(envelope.target().as_deref(), value["params"][field].as_str());
    }
}

/// Replaces the id of the message at an index, and checks every byte.
fn check_splice(bytes: &[u8], message: &Message<'_>, at: usize) {
    let Some(id) = message.envelopes()[at].id else { return };
    let changed = Splice::new(bytes).replace(id, "90210").finish();
    let start = changed.iter().zip(bytes).take_while(|(new, old)| new == old).count();
    let end = changed.iter().rev().zip(bytes.iter().rev()).take_while(|(new, old)| new == old).count();
    assert_eq!(changed.len() + id.get().len(), bytes.len() + 5, "only the id may change the length");
    assert!(start + end + id.get().len() >= bytes.len(), "only the bytes of the id may change");

    let again = Message::read(&changed).expect("a message with another id");
    for (place, (new, old)) in again.envelopes().iter().zip(message.envelopes()).enumerate() {
        let expected = if place == at { Some(IdKey::from_number(90210)) } else { old.key() };
        assert_eq!(new.key(), expected);
        assert_eq!(
            (&new.method, new.params.map(ToString::to_string)),
            (&old.method, old.params.map(ToString::to_string))
        );
    }
}

/// Calls every function that reads a message: it may find nothing, but must return.
fn call_every_reader(envelope: &Envelope<'_>) {
    assert_eq!(envelope.kind == EnvelopeKind::Response, envelope.method.is_none());
    let found = (envelope.progress_token(), envelope.cancelled(), envelope.subscription(), envelope.error_code());
    std::hint::black_box(found);
    std::hint::black_box((
        envelope.target(),
        envelope.string_param("protocolVersion"),
        envelope.result_protocol_version(),
    ));
}

fn split<'b>(limit: usize, pieces: impl Iterator<Item = &'b [u8]>) -> (Vec<Result<Event, TooLarge>>, Vec<u8>) {
    let mut splitter = Splitter::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        while let Some(event) = splitter.next_event() {
            events.push(event);
        }
        assert!(splitter.rest().len() <= limit, "the buffer exceeds the limit");
    }
    events.extend(splitter.finish());
    let rest = splitter.rest().to_vec();
    assert_eq!(splitter.take_rest(), rest);
    (events, rest)
}

fn framed<'b>(limit: usize, pieces: impl Iterator<Item = &'b [u8]>) -> Vec<Line> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for (turn, piece) in pieces.enumerate() {
        if turn % 2 == 0 {
            lines.push(piece);
        } else {
            lines.buffer().extend_from_slice(piece);
        }
        while let Some(line) = lines.next_line() {
            found.push(line);
        }
        assert!(lines.buffer().len() <= limit, "the buffer exceeds the limit");
    }
    while let Some(line) = lines.finish() {
        found.push(line);
    }
    assert!(lines.is_empty());
    found
}

/// The fields of an event.
#[derive(Debug, Default, PartialEq)]
struct EventFields {
    id: Option<String>,
    name: Option<String>,
    retry: Option<u64>,
    data: Option<Vec<u8>>,
    has_field: bool,
}

impl EventFields {
    fn of(event: &Event) -> Self {
        Self {
            id: event.id(),
            name: event.name(),
            retry: event.retry(),
            data: event.data(),
            has_field: !event.is_comment_only(),
        }
    }

    /// Processes one line, by "process the field" of the standard.
    fn process_line(&mut self, line: &[u8]) {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(0) => return,
            None => (line, &line[line.len()..]),
            Some(colon) => match &line[colon + 1..] {
                [b' ', value @ ..] => (&line[..colon], value),
                value => (&line[..colon], value),
            },
        };
        self.has_field = true;
        let text = String::from_utf8_lossy(value).into_owned();
        match name {
            b"id" if !text.contains('\0') => self.id = Some(text),
            b"event" => self.name = Some(text).filter(|text| !text.is_empty()),
            b"retry" if text.bytes().all(|byte| byte.is_ascii_digit()) => self.retry = text.parse().ok().or(self.retry),
            b"data" => match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(known) => {
                    known.push(b'\n');
                    known.extend_from_slice(value);
                }
            },
            _ => {}
        }
    }
}

fn fields_by_the_standard(stream: &[u8]) -> Vec<EventFields> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut all = Vec::new();
    let mut current = EventFields::default();
    let mut lines = lines(stream);
    // The last line has no ending, so it is ignored.
    lines.pop();
    for line in lines {
        if line.is_empty() {
            all.push(std::mem::take(&mut current));
        } else {
            current.process_line(line);
        }
    }
    all
}

/// The lines of a text, split at CRLF, LF and CR, and the bytes after the last of those.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..end]);
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
    }
    lines.push(rest);
    lines
}

/// The bytes in pieces of different lengths, always the same for the same bytes.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut state = hash(bytes);
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let (piece, further) = rest.split_at(((state >> 33) as usize % 13).min(rest.len()));
        rest = further;
        Some(piece)
    })
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
