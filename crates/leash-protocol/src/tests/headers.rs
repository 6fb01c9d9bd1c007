//! Headers alone, and compared with a body.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use proptest::prelude::*;

use crate::envelope::Message;
use crate::headers::{
    self, accepts, check_modern, is_hop_by_hop, is_json, mirrored, strip_hop_by_hop, valid_session_id,
};

const BOTH: [&str; 2] = ["application/json", "text/event-stream"];

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

#[test]
fn all_wanted_types_must_be_acceptable() {
    let check = |accept: &str, wanted: &[&str], expected: bool| {
        assert_eq!(accepts(&map(&[("accept", accept)]), wanted), expected, "{accept}");
    };
    for good in [
        "application/json, text/event-stream",
        "text/event-stream,application/json",
        "Application/JSON;charset=utf-8 , TEXT/Event-Stream ; q=0.1",
        "*/*",
        "application/*, text/*",
        "*/*;q=0, text/event-stream, application/json;q=1",
    ] {
        check(good, &BOTH, true);
    }
    for bad in [
        "",
        "application/json",
        "text/event-stream",
        "application/*",
        "text/html, application/jsonx, text/event-stream",
        "application/json, text/event-stream;q=0",
        "application/json, text/event-stream; Q=0.000",
        "*/*, text/event-stream;q=0",
        "*/*, text/*;q=0",
        "*, text",
        // Contradictory: the refusal counts.
        "application/json, application/json;q=0, text/event-stream",
    ] {
        check(bad, &BOTH, false);
    }
    check("text/event-stream", &["text/event-stream"], true);
    check("text/*;q=0, text/event-stream", &["text/event-stream"], true);
    assert!(!accepts(&HeaderMap::new(), &BOTH), "no header accepts nothing");
    let two = map(&[("accept", "application/json"), ("accept", "text/event-stream")]);
    assert!(accepts(&two, &BOTH));
}

#[test]
fn json_is_declared_with_or_without_parameters() {
    for (value, expected) in [
        ("application/json", true),
        ("application/json; charset=utf-8", true),
        (" Application/JSON ;x", true),
        ("text/plain", false),
        ("application/json-rpc", false),
        ("text/plain; application/json", false),
        ("", false),
    ] {
        assert_eq!(is_json(&map(&[("content-type", value)])), expected, "{value}");
    }
    assert!(!is_json(&HeaderMap::new()));
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"gr\u00fc\u00df",
    "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{
    "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
const GOOD: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "=?base64?Z3LDvMOf?=")];

/// Checks the headers `pairs` against `body`; an empty `why` means that they pass.
fn check(pairs: &[(&'static str, &str)], body: &str, why: &str) {
    let message = Message::read(body.as_bytes()).expect("a message");
    let found = check_modern(&map(pairs), &message.envelopes()[0]);
    assert_eq!(found.err().unwrap_or_default(), why, "{pairs:?} {body}");
}

#[test]
fn headers_that_repeat_the_body_pass() {
    check(&GOOD, CALL, "");
    check(&[GOOD[0], ("mcp-method", " tools/list\t")], LIST, "");
    check(&[GOOD[0], ("mcp-method", "tools/list"), ("mcp-name", "ignored")], LIST, "");
    let plain = CALL.replace(r"gr\u00fc\u00df", "echo");
    check(&[GOOD[0], GOOD[1], ("mcp-name", "  echo ")], &plain, "");
    check(&[GOOD[0], GOOD[1], ("mcp-name", "=?base64?ZWNobw==?=")], &plain, "");
    let odd = CALL.replace(r"gr\u00fc\u00df", "=?base64?ZWNobw==");
    check(&[GOOD[0], GOOD[1], ("mcp-name", "=?base64?ZWNobw==")], &odd, "");
    // Without a name in the body there is nothing to repeat, so no header is missing.
    check(&[GOOD[0], GOOD[1]], &CALL.replace("\"name\"", "\"other\""), "");
    check(&GOOD, &CALL.replace("\"name\"", "\"other\""), "");
}

#[test]
fn a_header_that_is_missing_is_named() {
    check(&GOOD[1..], CALL, "`mcp-protocol-version` is missing");
    check(&[GOOD[0], GOOD[2]], CALL, "`mcp-method` is missing");
    check(&GOOD[..2], CALL, "`mcp-name` is missing");
    check(&[], CALL, "`mcp-protocol-version` is missing");
}

#[test]
fn a_header_that_differs_from_the_body_is_named() {
    let version = "`mcp-protocol-version` is `2026-07-29`, but the body says `2026-07-28`";
    check(&[("mcp-protocol-version", "2026-07-29"), GOOD[1], GOOD[2]], CALL, version);
    let method = "`mcp-method` is `Tools/Call`, but the body says `tools/call`";
    check(&[GOOD[0], ("mcp-method", "Tools/Call"), GOOD[2]], CALL, method);
    let name = "`mcp-name` is `echo`, but the body says `gr\u{fc}\u{df}`";
    check(&[GOOD[0], GOOD[1], ("mcp-name", "echo")], CALL, name);
    check(&[GOOD[0], GOOD[1], ("mcp-name", "=?base64?ZWNobw==?=")], CALL, name);
}

#[test]
fn a_header_that_is_there_twice_is_refused() {
    check(&[GOOD[0], GOOD[1], GOOD[2], GOOD[2]], CALL, "more than one `mcp-name`");
    check(&[GOOD[0], GOOD[1], GOOD[1], GOOD[2]], CALL, "more than one `mcp-method`");
    check(&[GOOD[0], GOOD[0], GOOD[1], GOOD[2]], CALL, "more than one `mcp-protocol-version`");
    check(&[GOOD[0], GOOD[1], ("mcp-name", "gr\u{fc}\u{df}")], CALL, "`mcp-name` is not ASCII");
}

#[test]
fn base64_is_read_only_as_it_must_be_written() {
    // Missing, wrong or excess padding, a character outside the alphabet, stray bits, and bytes that are not UTF-8.
    for bad in ["ZWNobw", "ZWNobw=", "ZWNobw===", "ZWNo!w==", "ZWNobx==", "ZWNob-8=", "====", "Z===", "/w==", "ZW No"] {
        let value = format!("=?base64?{bad}?=");
        check(&[GOOD[0], GOOD[1], ("mcp-name", &value)], CALL, "`mcp-name` is not valid base64");
    }
    for (text, encoded) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("?>~", "Pz5+")]
    {
        let body = CALL.replace(r"gr\u00fc\u00df", text);
        check(&[GOOD[0], GOOD[1], ("mcp-name", &format!("=?base64?{encoded}?="))], &body, "");
    }
}

#[test]
fn notifications_may_leave_headers_out_but_not_contradict() {
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    check(&[], told, "");
    check(&GOOD[..1], told, "");
    let why = "`mcp-method` is `tools/call`, but the body says `notifications/cancelled`";
    check(&GOOD[..2], told, why);
    check(&[], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "");
}

#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let mut headers = map(&[
        ("connection", "close, X-Private"),
        ("connection", "x-other,, bad name"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "Basic x"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("x-private", "1"),
        ("x-private", "2"),
        ("x-other", "3"),
        ("mcp-session-id", "s"),
        ("mcp-param-region", "eu"),
        ("authorization", "Bearer t"),
    ]);
    strip_hop_by_hop(&mut headers);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["authorization", "mcp-param-region", "mcp-session-id"]);
    assert!(is_hop_by_hop(&HeaderName::from_static("proxy-connection")));
    assert!(!is_hop_by_hop(&headers::SESSION_ID) && !is_hop_by_hop(&headers::LAST_EVENT_ID));
}

#[test]
fn session_ids_are_visible_ascii() {
    for good in ["a", "!~", "1868a90c-aee5-4b3e-a0a4-bf2a3b2f2d2f", &"x".repeat(1024)] {
        assert!(valid_session_id(good), "{good}");
    }
    for bad in ["", " ", "a b", "a\n", "\u{7f}", "\u{e9}", &"x".repeat(1025)] {
        assert!(!valid_session_id(bad), "{bad:?}");
    }
}

#[test]
fn a_text_is_mirrored_unencoded_if_possible() {
    for (text, value) in [
        ("", ""),
        ("echo", "echo"),
        ("a b~", "a b~"),
        ("=?base64?ZWNobw==", "=?base64?ZWNobw=="),
        ("=?base64?ZWNobw==?=", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?="),
        (" f", "=?base64?IGY=?="),
        ("f\t", "=?base64?Zgk=?="),
        ("a\tb", "=?base64?YQli?="),
        ("gr\u{fc}\u{df}", "=?base64?Z3LDvMOf?="),
    ] {
        assert_eq!(mirrored(text), value, "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_mirrored_name_passes_the_check(name in any::<String>()) {
        let meta = serde_json::json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let params = serde_json::json!({"name": name, "_meta": meta});
        let call = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let value = mirrored(&name);
        check(&[GOOD[0], GOOD[1], ("mcp-name", value.to_str().expect("ASCII"))], &call, "");
    }
}
