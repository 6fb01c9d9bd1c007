//! The parts of JSON-RPC that leash needs: the kind of a message, the request that it answers, and the names in it.
//!
//! The reader scans the bytes once. It finds `params`, `result` and `error` and checks that they are JSON; only the
//! methods that need their contents parse them. It copies nothing, except strings with escapes.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

pub use super::splice::Splice;
use super::{number, object};

/// The codes of JSON-RPC and MCP errors that leash itself answers with.
pub mod codes {
    /// The body is not JSON.
    pub const PARSE: i64 = -32700;
    /// The body is JSON but not a message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is not known.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters, including `_meta`, are not valid for the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The code of servers for all other errors, in both eras.
    pub const SERVER: i64 = -32000;
    /// Modern: a header is missing, or differs from the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// Modern: the client lacks a capability that the method needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// Modern: the version is not supported.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// One body or one line: a message, or (in 2025-03-26 only) several.
#[derive(Debug)]
pub enum Message<'a> {
    /// A single message.
    One(Envelope<'a>),
    /// An array of messages, never empty.
    Batch(Vec<Envelope<'a>>),
}

impl<'a> Message<'a> {
    /// Reads the message in `source`, however deeply it is nested.
    pub fn read(source: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let text = std::str::from_utf8(source).map_err(|error| Malformed::Json(serde_json::Error::custom(error)))?;
        // JSON has fewer whitespace characters than ASCII.
        match text.trim_start_matches([' ', '\t', '\n', '\r']).as_bytes().first() {
            Some(b'{') => Envelope::read(text).map(Message::One),
            Some(b'[') => read_batch(text).map(Message::Batch),
            _ => {
                object::check(text).map_err(Malformed::Json)?;
                Err(Malformed::NotAMessage("neither an object nor an array"))
            }
        }
    }

    /// The messages in their order.
    pub fn envelopes(&self) -> &[Envelope<'a>] {
        match self {
            Message::One(envelope) => std::slice::from_ref(envelope),
            Message::Batch(envelopes) => envelopes,
        }
    }
}

/// The reason that bytes are not a message.
#[derive(Debug, Error)]
pub enum Malformed {
    /// Not JSON: [`codes::PARSE`].
    #[error("not JSON")]
    Json(#[source] serde_json::Error),
    /// JSON, but not JSON-RPC: [`codes::INVALID_REQUEST`].
    #[error("not a JSON-RPC message: {0}")]
    NotAMessage(&'static str),
    /// An empty array: [`codes::INVALID_REQUEST`].
    #[error("an empty batch")]
    EmptyBatch,
}

impl Malformed {
    /// The code of the error response to such bytes.
    pub fn code(&self) -> i64 {
        match self {
            Malformed::Json(_) => codes::PARSE,
            Malformed::NotAMessage(_) | Malformed::EmptyBatch => codes::INVALID_REQUEST,
        }
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeKind {
    /// It has a method and an id, and expects an answer.
    Request,
    /// It has a method and no id.
    Notification,
    /// It has a result or an error and no method.
    Response,
}

/// The top-level fields of one message. If a key occurs twice, the last one counts, as in JavaScript and Python.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// Its kind.
    pub kind: EnvelopeKind,
    /// As written: a string or a number for requests, `None` for notifications, anything for responses (`null` in
    /// errors that answer no request in particular).
    pub id: Option<&'a RawValue>,
    /// The method of requests and notifications.
    pub method: Option<Cow<'a, str>>,
    /// As written.
    pub params: Option<&'a RawValue>,
    /// As written; `null` is a result.
    pub result: Option<&'a RawValue>,
    /// As written.
    pub error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Result<Self, Malformed> {
        let [version, id, method, params, result, error] =
            object::fields(text, &["jsonrpc", "id", "method", "params", "result", "error"]).map_err(Malformed::Json)?;
        // Every SDK requires it, and it distinguishes a message from a log line that happens to be JSON.
        if version.and_then(object::string).as_deref() != Some("2.0") {
            return Err(Malformed::NotAMessage("`jsonrpc` is not \"2.0\""));
        }
        // Some servers write every field of their struct, with `null` for those that do not apply.
        let method = method.filter(|method| method.get() != "null");
        let Some(method) = method else {
            if result.is_none() && error.is_none() {
                return Err(Malformed::NotAMessage("no method, no result and no error"));
            }
            return Ok(Self { kind: EnvelopeKind::Response, id, method: None, params, result, error });
        };
        let Some(method) = object::string(method) else {
            return Err(Malformed::NotAMessage("`method` is not a string"));
        };
        // The client could not match an answer to such an id. MCP forbids `null` here; JSON-RPC only discourages it.
        if id.is_some_and(|id| !is_id(id)) {
            return Err(Malformed::NotAMessage("`id` is neither a string nor a number"));
        }
        let kind = if id.is_some() { EnvelopeKind::Request } else { EnvelopeKind::Notification };
        Ok(Self { kind, id, method: Some(method), params, result, error })
    }

    /// The id as a key; `None` if it is absent, `null` or not a valid id.
    pub fn key(&self) -> Option<IdKey> {
        self.id.and_then(IdKey::of)
    }

    /// The contents of `params._meta`. Parses the parameters on every call.
    pub fn meta(&self) -> Meta<'a> {
        self.params.map(Meta::of).unwrap_or_default()
    }

    /// The progress token: of a request, the one that it asks for progress with; of `notifications/progress`, the one
    /// that it names.
    pub fn progress_token(&self) -> Option<&'a RawValue> {
        match (self.kind, self.method.as_deref()) {
            (EnvelopeKind::Request, _) => self.meta().progress_token,
            (EnvelopeKind::Notification, Some("notifications/progress")) => {
                object::field(self.params?, "progressToken")
            }
            _ => None,
        }
    }

    /// The id of the request that a `notifications/cancelled` cancels.
    pub fn cancelled(&self) -> Option<&'a RawValue> {
        match self.method.as_deref() {
            Some("notifications/cancelled") => object::field(self.params?, "requestId"),
            _ => None,
        }
    }

    /// The subscription that the message belongs to, by `_meta` of the parameters or of the result.
    pub fn subscription(&self) -> Option<&'a RawValue> {
        match self.kind {
            EnvelopeKind::Response => object::field(object::field(self.result?, "_meta")?, SUBSCRIPTION_KEY),
            EnvelopeKind::Request | EnvelopeKind::Notification => self.meta().subscription,
        }
    }

    /// The parameter that the header `Mcp-Name` repeats for this method; `None` for methods without one.
    pub fn target_field(&self) -> Option<&'static str> {
        match self.method.as_deref()? {
            "tools/call" | "prompts/get" => Some("name"),
            "resources/read" => Some("uri"),
            "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
            _ => None,
        }
    }

    /// The value that the header `Mcp-Name` repeats: the tool, the prompt, the resource or the task.
    pub fn target(&self) -> Option<Cow<'a, str>> {
        self.string_param(self.target_field()?)
    }

    /// A string parameter, such as `protocolVersion` of `initialize`.
    pub fn string_param(&self, name: &str) -> Option<Cow<'a, str>> {
        object::string(object::field(self.params?, name)?)
    }

    /// The version in the answer to an `initialize`.
    pub fn result_protocol_version(&self) -> Option<Cow<'a, str>> {
        object::string(object::field(self.result?, "protocolVersion")?)
    }

    /// The code of an error.
    pub fn error_code(&self) -> Option<i64> {
        object::field(self.error?, "code")?.get().parse().ok()
    }
}

/// The fields of `params._meta` that leash needs.
#[derive(Clone, Debug, Default)]
pub struct Meta<'a> {
    /// The protocol version of a modern request.
    pub protocol_version: Option<Cow<'a, str>>,
    /// The token that progress notifications name.
    pub progress_token: Option<&'a RawValue>,
    /// The subscription that a notification belongs to.
    pub subscription: Option<&'a RawValue>,
    /// True if the client's capabilities are present, and an object.
    pub client_capabilities: bool,
    /// True if there is a version, even if it is not a string: the message claims to be modern.
    pub claims_modern: bool,
    /// True if `_meta` is present, and an object.
    pub present: bool,
}

impl<'a> Meta<'a> {
    fn of(params: &'a RawValue) -> Self {
        let names = [VERSION_KEY, "progressToken", SUBSCRIPTION_KEY, CAPABILITIES_KEY];
        let found = object::field(params, "_meta").and_then(|meta| object::fields(meta.get(), &names).ok());
        let Some([version, progress_token, subscription, capabilities]) = found else {
            return Self::default();
        };
        Self {
            protocol_version: version.and_then(object::string),
            progress_token,
            subscription,
            client_capabilities: capabilities.is_some_and(object::is_object),
            claims_modern: version.is_some(),
            present: true,
        }
    }
}

/// An id as a map key: `1` and `"1"` differ, `"a"` and `"\u0061"` are equal, and so are `1`, `1.0` and `1e0`, because
/// servers may write numbers in another form. It also keeps the form in which the id was written.
#[derive(Clone, Debug)]
pub struct IdKey {
    canonical: Box<str>,
    /// The written form, if it differs.
    written: Option<Box<str>>,
}

impl PartialEq for IdKey {
    fn eq(&self, other: &IdKey) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for IdKey {}

impl Hash for IdKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl IdKey {
    /// The key of an id; `None` when it is neither a string nor a number.
    pub fn of(raw: &RawValue) -> Option<IdKey> {
        let text = raw.get();
        if !is_id(raw) {
            return None;
        }
        let canonical = match text.as_bytes() {
            [b'"', ..] if !text.contains('\\') => Cow::Borrowed(text),
            // An id with half a surrogate pair is not a Rust string, so it is compared as written. It cannot equal a
            // canonical form, because none has such an escape.
            [b'"', ..] => serde_json::from_str::<String>(text)
                .map_or(Cow::Borrowed(text), |string| serde_json::Value::from(string).to_string().into()),
            _ => number::canonical(text),
        };
        let written = (*canonical != *text).then(|| text.into());
        Some(IdKey { canonical: canonical.into(), written })
    }

    /// The key of a number, for ids that leash assigns.
    pub fn from_number(number: u64) -> IdKey {
        IdKey { canonical: number.to_string().into_boxed_str(), written: None }
    }

    /// The id as JSON, byte for byte as it was written.
    pub fn as_str(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.canonical)
    }

    /// The number that leash assigned, in whatever form it came back.
    pub fn number(&self) -> Option<u64> {
        self.canonical.parse().ok()
    }
}

/// A JSON-RPC error as leash itself answers it: `id` is raw JSON, or `null` for none.
pub fn error_body(id: Option<&RawValue>, code: i64, message: &str, data: Option<serde_json::Value>) -> Vec<u8> {
    let id = id.map_or("null", RawValue::get);
    let message = serde_json::Value::from(message);
    let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#).into_bytes()
}

/// The name and the version in `clientInfo` of an `initialize`; `None` for another message.
pub fn client_info(source: &[u8]) -> Option<(Option<String>, Option<String>)> {
    let Ok(Message::One(envelope)) = Message::read(source) else { return None };
    if envelope.method.as_deref() != Some("initialize") {
        return None;
    }
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "clientInfo")]
        client_info: ClientInfo,
    }
    #[derive(Deserialize)]
    struct ClientInfo {
        name: Option<String>,
        version: Option<String>,
    }
    let params: Params = serde_json::from_str(envelope.params?.get()).ok()?;
    Some((params.client_info.name, params.client_info.version))
}

/// The notification that cancels a request: `id` is raw JSON.
pub fn cancelled_body(id: impl std::fmt::Display, reason: &str) -> Vec<u8> {
    let params = format!(r#"{{"requestId":{id},"reason":{}}}"#, serde_json::Value::from(reason));
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#).into_bytes()
}

fn is_id(value: &RawValue) -> bool {
    matches!(value.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

fn read_batch(text: &str) -> Result<Vec<Envelope<'_>>, Malformed> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let envelopes = reader.deserialize_seq(BatchVisitor).map_err(Malformed::Json)?;
    reader.end().map_err(Malformed::Json)?;
    let envelopes = envelopes?;
    if envelopes.is_empty() { Err(Malformed::EmptyBatch) } else { Ok(envelopes) }
}

/// Reads the elements of a batch one by one: collecting them as JSON first would take several times the memory of the
/// body.
struct BatchVisitor;

impl<'de> Visitor<'de> for BatchVisitor {
    type Value = Result<Vec<Envelope<'de>>, Malformed>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut envelopes = Ok(Vec::new());
        // After an element that is not a message the rest is still read: if it is not even JSON, that error takes
        // precedence.
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            if let Ok(known) = &mut envelopes {
                match Envelope::of_element(element) {
                    Ok(envelope) => known.push(envelope),
                    Err(fault) => envelopes = Err(fault),
                }
            }
        }
        Ok(envelopes)
    }
}

impl<'a> Envelope<'a> {
    fn of_element(element: &'a RawValue) -> Result<Self, Malformed> {
        if object::is_object(element) {
            Self::read(element.get())
        } else {
            Err(Malformed::NotAMessage("an element of the batch is not an object"))
        }
    }
}
