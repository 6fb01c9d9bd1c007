//! The HTTP headers of MCP: their names, and checks that need only the headers and an envelope.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use super::envelope::{Envelope, EnvelopeKind};

/// Legacy: the session id.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The protocol version of a request.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Modern: the method of the body.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Modern: the tool, prompt, resource or task of the body.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The value of `Accept` in a request that may be answered with a message or with a stream.
pub const ACCEPT_BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// The last event that a client received, when it resumes a stream.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Modern: the prefix of the headers that repeat arguments. Unknown ones are forwarded.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The markers around an encoded value.
const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The longest accepted session id. The specification has no limit; ids in the field have 32 to 64 characters.
const SESSION_ID_LENGTH: usize = 1024;

/// Headers that apply to one connection and are not forwarded: the list of RFC 9110 section 7.6.1, and the two that RFC
/// 2616 had.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// True if every media type of `wanted` is acceptable. A request without the header accepts nothing: the SDKs answer
/// 406 too.
pub fn accepts(headers: &HeaderMap, wanted: &[&str]) -> bool {
    let values = || headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    wanted.iter().all(|wanted| {
        let ranges = values().flat_map(|value| value.split(','));
        let best = ranges.filter_map(|range| Some((precision(range, wanted)?, is_refused(range)))).max();
        best.is_some_and(|(_, refused)| !refused)
    })
}

/// True if the body is declared as JSON, with or without parameters.
pub fn is_json(headers: &HeaderMap) -> bool {
    is_of(headers, "application/json")
}

/// True if the body is declared as an event stream, with or without parameters.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    is_of(headers, "text/event-stream")
}

fn is_of(headers: &HeaderMap, kind: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| essence(value).eq_ignore_ascii_case(kind))
}

/// The session that a request names. A value that is not text becomes the empty id, which no session has.
pub fn named_session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID).map(|value| value.to_str().unwrap_or_default())
}

/// The session that a response opens; `None` if there is none, or its id is not valid.
pub fn opened_session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID)?.to_str().ok().filter(|id| valid_session_id(id))
}

/// Sets the session and the protocol version of a request. A value that no header can have is left out.
pub fn set_session(headers: &mut HeaderMap, id: Option<&str>, version: Option<&str>) {
    for (name, value) in [(SESSION_ID, id), (PROTOCOL_VERSION, version)] {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
}

/// Checks the headers of a modern request: the version must be that of `_meta`, `Mcp-Method` the method, and `Mcp-Name`
/// the [target](Envelope::target). The error is the message for
/// [`HEADER_MISMATCH`](super::envelope::codes::HEADER_MISMATCH).
///
/// A body without a version is another error (`INVALID_PARAMS`), which the caller must check. Notifications need not
/// have the headers, but if they have them, they must agree; responses have none.
pub fn check_modern(headers: &HeaderMap, envelope: &Envelope<'_>) -> Result<(), String> {
    let Some(method) = envelope.method.as_deref() else {
        return Ok(());
    };
    let required = envelope.kind == EnvelopeKind::Request;
    let version = envelope.meta().protocol_version;
    match (single(headers, &PROTOCOL_VERSION)?, version) {
        (None, _) if required => return Err(missing(&PROTOCOL_VERSION)),
        (Some(header), Some(body)) if header != body => return Err(mismatch(&PROTOCOL_VERSION, header, &body)),
        _ => {}
    }
    match single(headers, &METHOD)? {
        None if required => return Err(missing(&METHOD)),
        Some(header) if header != method => return Err(mismatch(&METHOD, header, method)),
        _ => {}
    }
    if envelope.target_field().is_none() {
        return Ok(());
    }
    let target = envelope.target();
    let Some(named) = mirror_of(headers, &NAME)? else {
        return if required && target.is_some() { Err(missing(&NAME)) } else { Ok(()) };
    };
    match target {
        Some(target) if named != target => Err(mismatch(&NAME, &named, &target)),
        _ => Ok(()),
    }
}

/// The value of `Mcp-Name` and `Mcp-Param-*` for a text: the text itself if it can be read back, otherwise
/// `=?base64?..?=`.
pub fn mirrored(text: &str) -> HeaderValue {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text && !is_encoded(text);
    let encoded = if is_plain { text.to_owned() } else { format!("{PREFIX}{}{SUFFIX}", BASE64.encode(text)) };
    // Both forms are visible ASCII and spaces, which every header may have.
    HeaderValue::from_str(&encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The text that a header [carries](mirrored), if there is such a header. The error is a message like that of
/// [`check_modern`].
pub fn mirror_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<Cow<'h, str>>, String> {
    let Some(header) = single(headers, name)? else { return Ok(None) };
    decoded(header).map(Some).ok_or_else(|| format!("`{name}` is not valid base64"))
}

/// True if a header applies to one connection only, and is not forwarded.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Removes the headers that are not forwarded: the known ones, and those that `Connection` names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// True if a text may be a session id: visible ASCII of limited length.
pub fn valid_session_id(id: &str) -> bool {
    (1..=SESSION_ID_LENGTH).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The precision with which a media range matches a media type; `None` if it does not match.
fn precision(range: &str, wanted: &str) -> Option<u8> {
    let range = essence(range);
    let kind = |text: &str| text.split('/').next().unwrap_or_default().to_ascii_lowercase();
    match range.split_once('/') {
        _ if range.eq_ignore_ascii_case(wanted) => Some(2),
        Some((of, "*")) if of != "*" && of.to_ascii_lowercase() == kind(wanted) => Some(1),
        Some(("*", "*")) => Some(0),
        _ => None,
    }
}

/// True if a media range has `q=0`.
fn is_refused(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or_default();
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
    })
}

/// A media type without its parameters.
fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

/// The value of a header that must not occur twice: a server that reads the other value would see another request.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, String> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(format!("more than one `{name}`"));
    }
    let value = value.to_str().map_err(|_| format!("`{name}` is not ASCII"))?;
    Ok(Some(value.trim_matches([' ', '\t'])))
}

/// The message for a missing header.
pub(crate) fn missing(name: &HeaderName) -> String {
    format!("`{name}` is missing")
}

/// The message for a header that differs from the body.
pub(crate) fn mismatch(name: &HeaderName, header: &str, body: &str) -> String {
    format!("`{name}` is `{header}`, but the body says `{body}`")
}

/// The decoded value of a header that may be written as `=?base64?..?=`; `None` if that is malformed.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Some(Cow::Borrowed(value));
    };
    String::from_utf8(BASE64.decode(encoded).ok()?).ok().map(Cow::Owned)
}

fn is_encoded(value: &str) -> bool {
    value.strip_prefix(PREFIX).is_some_and(|rest| rest.ends_with(SUFFIX))
}
