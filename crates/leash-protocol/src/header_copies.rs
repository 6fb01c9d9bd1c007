//! Modern requests repeat parts of their body as headers (SEP-2243). A tool's schema says which arguments are repeated,
//! so leash reads the responses to `tools/list` as they pass.
//!
//! `leash connect` writes these headers, because its host speaks over a pipe. `leash serve` checks them for a stdio
//! server, which does not see headers.

use std::borrow::Cow;
use std::collections::HashMap;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Number, Value};

use crate::envelope::{Envelope, EnvelopeKind, Message};
use crate::headers::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};

/// Most tools whose arguments are repeated as headers: far more than any server has.
const TOOLS: usize = 1024;

/// How deep such an argument may lie.
const DEPTH: usize = 16;

/// The annotation of an argument in a schema.
const ANNOTATION: &str = "x-mcp-header";

/// The tools whose arguments are repeated as headers.
#[derive(Debug, Default)]
pub struct HeaderCopies {
    tools: HashMap<String, Tool>,
}

/// The headers that a tool's schema asks for.
#[derive(Debug, PartialEq, Eq)]
enum Tool {
    /// These arguments are repeated as headers.
    Repeats(Vec<HeaderCopy>),
    /// An annotation is not valid, so the whole tool is not valid.
    Invalid,
}

/// An argument that is repeated as a header.
#[derive(Debug, PartialEq, Eq)]
struct HeaderCopy {
    /// The property names that lead to the argument.
    path: Vec<String>,
    header: HeaderName,
}

impl HeaderCopies {
    /// Reads the response to a `tools/list`. Returns the number of invalid annotations.
    pub fn learn(&mut self, answer: &Envelope<'_>) -> usize {
        let Some(result) = answer.result.map(|result| result.get()) else { return 0 };
        // Nearly all lists end here and are not parsed.
        if memchr::memmem::find(result.as_bytes(), ANNOTATION.as_bytes()).is_none() && self.tools.is_empty() {
            return 0;
        }
        let Ok(result) = serde_json::from_str::<Value>(result) else { return 0 };
        let mut useless = 0;
        for tool in result["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let mut found = Annotations::default();
            found.walk(&tool["inputSchema"], &mut Vec::new());
            useless += found.useless;
            let tool = if found.useless > 0 { Tool::Invalid } else { Tool::Repeats(found.copies) };
            if tool == Tool::Repeats(Vec::new()) {
                self.tools.remove(name);
            } else if self.tools.len() < TOOLS || self.tools.contains_key(name) {
                self.tools.insert(name.to_owned(), tool);
            }
        }
        useless
    }

    /// Returns the tool of a call, if the call must not be made because the tool's schema is not valid.
    pub fn invalid_tool(&self, line: &[u8]) -> Option<String> {
        if self.tools.is_empty() {
            return None;
        }
        let Ok(Message::One(message)) = Message::read(line) else { return None };
        let (tool, known) = self.called(&message)?;
        (*known == Tool::Invalid).then(|| tool.into_owned())
    }

    /// Adds the headers of a modern message. `default_version` is the version for a message that names none itself.
    pub fn headers(&self, message: &Envelope<'_>, default_version: Option<&str>, headers: &mut HeaderMap) {
        let version = message.meta().protocol_version;
        let mut insert = |name: HeaderName, value: &str| {
            // A value that is not valid in a header is left out. The upstream then reports the missing header.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if let Some(version) = version.as_deref().or(default_version) {
            insert(PROTOCOL_VERSION, version);
        }
        if let Some(method) = message.method.as_deref() {
            insert(METHOD, method);
        }
        if let Some(target) = message.target() {
            headers.insert(NAME, headers::mirrored(&target));
        }
        for (copy, argument) in self.arguments(message) {
            if let Some(text) = as_text(&argument) {
                headers.insert(copy.header.clone(), headers::mirrored(&text));
            }
        }
    }

    /// Checks that the headers of a call agree with its arguments. The error is the message for
    /// [`HEADER_MISMATCH`](crate::envelope::codes::HEADER_MISMATCH). A tool that was not listed has nothing to repeat.
    pub fn check(&self, message: &Envelope<'_>, headers: &HeaderMap) -> Result<(), String> {
        for (HeaderCopy { header, .. }, argument) in self.arguments(message) {
            match (headers::mirror_of(headers, header)?, as_text(&argument)) {
                (None, None) => {}
                (Some(_), None) => return Err(format!("`{header}` repeats an argument that the call does not have")),
                (None, Some(_)) => return Err(headers::missing(header)),
                (Some(copy), Some(text)) if copy == text || (argument.is_number() && is_number(&copy, &text)) => {}
                (Some(copy), Some(text)) => return Err(headers::mismatch(header, &copy, &text)),
            }
        }
        Ok(())
    }

    /// Returns the arguments of a call that are repeated as headers.
    fn arguments(&self, message: &Envelope<'_>) -> Vec<(&HeaderCopy, Value)> {
        let Some((_, Tool::Repeats(copies))) = self.called(message) else { return Vec::new() };
        let params = message.params.and_then(|params| serde_json::from_str(params.get()).ok());
        let params: Value = params.unwrap_or_default();
        let argument = |copy: &HeaderCopy| {
            copy.path.iter().fold(&params["arguments"], |value, name| &value[name.as_str()]).clone()
        };
        copies.iter().map(|copy| (copy, argument(copy))).collect()
    }

    /// Returns the tool of a call, if the tool has annotations.
    fn called<'m>(&self, message: &Envelope<'m>) -> Option<(Cow<'m, str>, &Tool)> {
        let is_call = message.kind == EnvelopeKind::Request && message.method.as_deref() == Some("tools/call");
        // Most servers have no annotated tools. Then the message is not parsed.
        let name = if is_call && !self.tools.is_empty() { message.target() } else { None }?;
        let tool = self.tools.get(&*name)?;
        Some((name, tool))
    }
}

/// The annotations in a schema.
#[derive(Default)]
struct Annotations {
    copies: Vec<HeaderCopy>,
    useless: usize,
}

impl Annotations {
    /// Collects the annotations. Only an argument that is reached through `properties` alone has one fixed place in
    /// every call.
    fn walk(&mut self, schema: &Value, path: &mut Vec<String>) {
        if path.len() > DEPTH {
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
        // `number` is not allowed, because there are too many ways to write a fraction.
        let is_primitive = matches!(property["type"].as_str(), Some("string" | "integer" | "boolean"));
        let name = annotation.as_str().filter(|name| !name.is_empty() && is_primitive);
        let header = name.and_then(|name| HeaderName::from_bytes(format!("{PARAM_PREFIX}{name}").as_bytes()).ok());
        match header.filter(|header| self.copies.iter().all(|known| known.header != *header)) {
            Some(header) => self.copies.push(HeaderCopy { path: path.to_vec(), header }),
            None => self.useless += 1,
        }
    }
}

/// Returns a primitive value as text for a header. `None` if the value is absent, `null` or not a primitive.
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

/// True if a header's text is the same number, written in any form.
fn is_number(header: &str, argument: &str) -> bool {
    header.parse::<Number>().ok().and_then(|number| as_text(&Value::Number(number))).as_deref() == Some(argument)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::check_modern;
    use proptest::prelude::*;

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"sql","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "limits":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Rows"}}},
            "dry":{"type":"boolean","x-mcp-header":"Dry"}}}},
        {"name":"twice","inputSchema":{"properties":{
            "a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"region"}}}},
        {"name":"list","inputSchema":{"properties":{"a":{"type":"array","x-mcp-header":"List"}}}},
        {"name":"fraction","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}},
        {"name":"bad","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"no good"}}}},
        {"name":"empty","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":""}}}},
        {"name":"plain","inputSchema":{"type":"object"}}]}}"#;

    fn copies() -> HeaderCopies {
        let mut copies = HeaderCopies::default();
        let message = Message::read(LIST.as_bytes()).expect("JSON");
        assert_eq!(copies.learn(&message.envelopes()[0]), 5);
        copies
    }

    fn headers_of(line: &str) -> Vec<String> {
        let message = Message::read(line.as_bytes()).expect("JSON");
        let mut headers = HeaderMap::new();
        copies().headers(&message.envelopes()[0], Some("2026-07-28"), &mut headers);
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
    fn method_name_and_version_are_repeated() {
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
            r#""name":"sql","arguments":{"region":"eu","limits":{"rows":42.0},"dry":false,"more":[1]},"#,
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
    fn message_without_a_version_gets_the_last_one() {
        let line = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        assert_eq!(headers_of(line), ["mcp-method: notifications/x", "mcp-protocol-version: 2026-07-28"]);
    }

    #[test]
    fn tools_with_invalid_annotations_are_found() {
        for (tool, expected) in [
            ("sql", false),
            ("plain", false),
            ("twice", true),
            ("list", true),
            ("fraction", true),
            ("bad", true),
            ("empty", true),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
            let message = Message::read(line.as_bytes()).expect("JSON");
            assert_eq!(copies().invalid_tool(line.as_bytes()).as_deref(), expected.then_some(tool));
            assert_eq!(copies().check(&message.envelopes()[0], &HeaderMap::new()), Ok(()));
        }
        let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"twice"}}"#;
        assert_eq!(copies().invalid_tool(prompt.as_bytes()), None);
    }

    #[test]
    fn changed_tool_is_read_again() {
        let mut copies = copies();
        let changed = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"sql","inputSchema":{}}]}}"#;
        let message = Message::read(changed.as_bytes()).expect("JSON");
        copies.learn(&message.envelopes()[0]);
        assert!(!copies.tools.contains_key("sql") && copies.tools.contains_key("bad"));
    }

    /// Checks a call of `sql` with these arguments and headers.
    fn check_call(arguments: &str, headers: &[(&'static str, &str)], expected: Result<(), &str>) {
        let params = format!(r#"{{"name":"sql","arguments":{arguments}}}"#);
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let message = Message::read(line.as_bytes()).expect("JSON");
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        assert_eq!(copies().check(&message.envelopes()[0], &headers), expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn headers_must_match_the_arguments() {
        let region = "mcp-param-region";
        check_call("{}", &[], Ok(()));
        check_call(r#"{"region":"eu"}"#, &[(region, "eu")], Ok(()));
        check_call(r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVsbG8=?=")], Ok(()));
        check_call(r#"{"region":"SGVsbG8="}"#, &[(region, "SGVsbG8=")], Ok(()));
        check_call(r#"{"region":"eu"}"#, &[], Err("`mcp-param-region` is missing"));
        check_call(r#"{"region":"eu"}"#, &[(region, "us")], Err("`mcp-param-region` is `us`, but the body says `eu`"));
        check_call(r#"{"region":"x"}"#, &[(region, "=?base64?eA?=")], Err("`mcp-param-region` is not valid base64"));
        check_call(
            r#"{"region":null}"#,
            &[(region, "eu")],
            Err("`mcp-param-region` repeats an argument that the call does not have"),
        );
        check_call(r#"{"region":"eu"}"#, &[(region, "eu"), (region, "us")], Err("more than one `mcp-param-region`"));
    }

    #[test]
    fn numbers_match_in_any_form() {
        for said in ["42", "42.0", "4.2e1"] {
            check_call(r#"{"limits":{"rows":42.0}}"#, &[("mcp-param-rows", said)], Ok(()));
        }
        let near = Err("`mcp-param-rows` is `9007199254740992`, but the body says `9007199254740993`");
        check_call(r#"{"limits":{"rows":9007199254740993}}"#, &[("mcp-param-rows", "9007199254740992")], near);
        let text = Err("`mcp-param-region` is `42.0`, but the body says `42`");
        check_call(r#"{"region":"42"}"#, &[("mcp-param-region", "42.0")], text);
    }

    #[test]
    fn headers_of_unlisted_tools_are_not_checked() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"new","arguments":{"region":1}}}"#;
        let message = Message::read(line.as_bytes()).expect("JSON");
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static("mcp-param-region"), HeaderValue::from_static("2"))]);
        assert_eq!(copies().check(&message.envelopes()[0], &headers), Ok(()));
    }

    proptest! {
        /// The receiving side reads the same name, for any name.
        #[test]
        fn names_are_read_back(name in "\\PC*|[ -~\t]*") {
            let params = serde_json::json!({"name": name, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
            let line = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
            let message = Message::read(line.as_bytes()).expect("JSON");
            let mut headers = HeaderMap::new();
            HeaderCopies::default().headers(&message.envelopes()[0], None, &mut headers);
            prop_assert_eq!(check_modern(&headers, &message.envelopes()[0]), Ok(()));
            prop_assert!(headers.contains_key(NAME));
        }
    }
}
