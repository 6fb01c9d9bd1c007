//! Modern requests repeat parts of their body as headers (SEP-2243). Which arguments of a tool are repeated is written in its
//! schema, so the answers to `tools/list` are looked at as they pass by.

use std::collections::HashMap;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::limits;
use crate::protocol::envelope::{Envelope, Kind};
use crate::protocol::headers::{METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};

/// What marks an argument in a schema.
const ANNOTATION: &str = "x-mcp-header";

/// The tools whose arguments are repeated as headers.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    tools: HashMap<String, Vec<Mirror>>,
}

/// An argument that is repeated as a header.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    /// The names on the way to it.
    path: Vec<String>,
    header: HeaderName,
}

impl Mirrors {
    /// Looks at the answer to a `tools/list`; says how many annotations are of no use.
    pub(crate) fn learn(&mut self, answer: &Envelope<'_>) -> usize {
        let Some(result) = answer.result.map(|result| result.get()) else { return 0 };
        // Nearly all lists end here, without being read once more.
        if memchr::memmem::find(result.as_bytes(), ANNOTATION.as_bytes()).is_none() && self.tools.is_empty() {
            return 0;
        }
        let Ok(result) = serde_json::from_str::<Value>(result) else { return 0 };
        let mut useless = 0;
        for tool in result["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let mut found = Found::default();
            found.walk(&tool["inputSchema"], &mut Vec::new());
            useless += found.useless;
            if found.mirrors.is_empty() {
                self.tools.remove(name);
            } else if self.tools.len() < limits::MIRRORED_TOOLS || self.tools.contains_key(name) {
                self.tools.insert(name.to_owned(), found.mirrors);
            }
        }
        useless
    }

    /// The headers of a modern message; `spoken` is the version for those that name none themselves.
    pub(crate) fn headers(&self, message: &Envelope<'_>, spoken: Option<&str>, headers: &mut HeaderMap) {
        let version = message.meta().protocol_version;
        let mut insert = |name: HeaderName, value: &str| {
            // What no header can carry is left out: the upstream then says what it misses.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if let Some(version) = version.as_deref().or(spoken) {
            insert(PROTOCOL_VERSION, version);
        }
        if let Some(method) = message.method.as_deref() {
            insert(METHOD, method);
        }
        let Some(target) = message.target() else { return };
        insert(NAME, &encoded(&target));
        if message.kind != Kind::Request || message.method.as_deref() != Some("tools/call") {
            return;
        }
        let Some(mirrors) = self.tools.get(&*target) else { return };
        let params: Value =
            message.params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        for mirror in mirrors {
            let value = mirror.path.iter().fold(&params["arguments"], |value, name| &value[name.as_str()]);
            if let Some(text) = as_text(value) {
                insert(mirror.header.clone(), &encoded(&text));
            }
        }
    }
}

/// What a schema says of headers.
#[derive(Default)]
struct Found {
    mirrors: Vec<Mirror>,
    useless: usize,
}

impl Found {
    /// Only what is reached through `properties` alone has one place in every call.
    fn walk(&mut self, schema: &Value, path: &mut Vec<String>) {
        if path.len() > limits::MIRROR_DEPTH {
            return;
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            path.push(name.clone());
            if let Some(annotation) = property.get(ANNOTATION) {
                self.note(annotation, property, path);
            }
            self.walk(property, path);
            path.pop();
        }
    }

    fn note(&mut self, annotation: &Value, property: &Value, path: &[String]) {
        // The specification has no `number`; the conformance suite does.
        let is_primitive = matches!(property["type"].as_str(), Some("string" | "integer" | "boolean" | "number"));
        let name = annotation.as_str().filter(|name| !name.is_empty() && is_primitive);
        let header = name.and_then(|name| HeaderName::from_bytes(format!("{PARAM_PREFIX}{name}").as_bytes()).ok());
        match header.filter(|header| self.mirrors.iter().all(|known| known.header != *header)) {
            Some(header) => self.mirrors.push(Mirror { path: path.to_vec(), header }),
            None => self.useless += 1,
        }
    }
}

/// A primitive as it is written in a header; `None` for what is absent, `null` or no primitive.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => {
            // `42.0` is an integer in JSON and in JavaScript, where it is written `42`.
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15 && !number.is_i64());
            Some(whole.map_or_else(|| number.to_string(), |float| format!("{float:.0}")))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A value as a header carries it: as it is, or in base64 where a header would lose something.
fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    let trimmed = value.trim_matches([' ', '\t']) == value;
    let looks_encoded = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && trimmed && !looks_encoded {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", base64(value.as_bytes()))
    }
}

/// Base64 with the standard alphabet and padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let sextet = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > group.len() { '=' } else { char::from(ALPHABET[sextet as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::envelope::Message;
    use crate::protocol::headers::check_modern;
    use proptest::prelude::*;

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"sql","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "limits":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Rows"}}},
            "dry":{"type":"boolean","x-mcp-header":"Dry"},
            "twice":{"type":"string","x-mcp-header":"region"},
            "list":{"type":"array","x-mcp-header":"List"},
            "bad":{"type":"string","x-mcp-header":"no good"},
            "empty":{"type":"string","x-mcp-header":""}}}},
        {"name":"plain","inputSchema":{"type":"object"}}]}}"#;

    fn mirrors() -> Mirrors {
        let mut mirrors = Mirrors::default();
        let message = Message::read(LIST.as_bytes()).expect("JSON");
        assert_eq!(mirrors.learn(&message.envelopes()[0]), 4);
        mirrors
    }

    fn headers_of(line: &str) -> Vec<String> {
        let message = Message::read(line.as_bytes()).expect("JSON");
        let mut headers = HeaderMap::new();
        mirrors().headers(&message.envelopes()[0], Some("2026-07-28"), &mut headers);
        assert_eq!(check_modern(&headers, &message.envelopes()[0]), Ok(()), "{line}");
        let mut shown: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?"))).collect();
        shown.sort();
        shown
    }

    fn check(method: &str, params: &str, expected: &[&str]) {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}"#;
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{meta}}}}}"#);
        let mut all = vec!["mcp-protocol-version: 2027-01-01".to_owned(), format!("mcp-method: {method}")];
        all.extend(expected.iter().map(|text| (*text).to_owned()));
        all.sort();
        assert_eq!(headers_of(&line), all);
    }

    #[test]
    fn what_is_repeated() {
        check("tools/list", "", &[]);
        check("tools/call", r#""name":"plain","#, &["mcp-name: plain"]);
        check("resources/read", r#""uri":"file:///ä","#, &["mcp-name: =?base64?ZmlsZTovLy/DpA==?="]);
        check("prompts/get", r#""name":" x ","#, &["mcp-name: =?base64?IHgg?="]);
        check("prompts/get", r#""name":"=?base64?literal?=","#, &["mcp-name: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="]);
        check("tasks/get", r#""taskId":"t-1","#, &["mcp-name: t-1"]);
    }

    #[test]
    fn arguments_are_repeated_as_the_schema_says() {
        check(
            "tools/call",
            r#""name":"sql","arguments":{"region":"eu","limits":{"rows":42.0},"dry":false,"twice":"no","list":[1]},"#,
            &["mcp-name: sql", "mcp-param-region: eu", "mcp-param-rows: 42", "mcp-param-dry: false"],
        );
        check("tools/call", r#""name":"sql","arguments":{"region":null,"limits":3},"#, &["mcp-name: sql"]);
        check(
            "tools/call",
            r#""name":"sql","arguments":{"region":"世界"},"#,
            &["mcp-name: sql", "mcp-param-region: =?base64?5LiW55WM?="],
        );
        check("tools/call", r#""name":"sql","#, &["mcp-name: sql"]);
    }

    #[test]
    fn a_message_without_a_version_gets_the_one_last_spoken() {
        let line = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        assert_eq!(headers_of(line), ["mcp-method: notifications/x", "mcp-protocol-version: 2026-07-28"]);
    }

    #[test]
    fn a_tool_that_changed_is_learned_anew() {
        let mut mirrors = mirrors();
        let changed = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"sql","inputSchema":{}}]}}"#;
        let message = Message::read(changed.as_bytes()).expect("JSON");
        mirrors.learn(&message.envelopes()[0]);
        assert!(mirrors.tools.is_empty());
    }

    proptest! {
        /// Any name is sent so that the receiving side reads the same name.
        #[test]
        fn names_are_read_back(name in "\\PC*|[ -~\t]*") {
            let params = serde_json::json!({"name": name, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
            let line = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
            let message = Message::read(line.as_bytes()).expect("JSON");
            let mut headers = HeaderMap::new();
            Mirrors::default().headers(&message.envelopes()[0], None, &mut headers);
            prop_assert_eq!(check_modern(&headers, &message.envelopes()[0]), Ok(()));
            prop_assert!(headers.contains_key(NAME));
        }
    }
}
