//! Envelopes of hand-written messages.

use serde_json::json;
use serde_json::value::RawValue;

use super::json;
use crate::envelope::{Envelope, EnvelopeKind, IdKey, Malformed, Message, Splice, codes, error_body};

fn one(source: &str) -> Envelope<'_> {
    match Message::read(source.as_bytes()) {
        Ok(Message::One(envelope)) => envelope,
        other => panic!("not one message: {other:?}"),
    }
}

fn text(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get)
}

#[test]
fn the_kind_depends_on_method_and_id() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, EnvelopeKind::Request),
        (r#"{"jsonrpc":"2.0","id":"","method":""}"#, EnvelopeKind::Request),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, EnvelopeKind::Request),
        (r#"{"jsonrpc":"2.0","method":"a"}"#, EnvelopeKind::Notification),
        (r#"{"jsonrpc":"2.0","method":"a","params":null}"#, EnvelopeKind::Notification),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, EnvelopeKind::Response),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, EnvelopeKind::Response),
        (r#"{"jsonrpc":"2.0","id":1,"method":null,"result":{},"error":null}"#, EnvelopeKind::Response),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, EnvelopeKind::Response),
        (r#"{"jsonrpc":"2.0","error":{}}"#, EnvelopeKind::Response),
    ];
    for (source, kind) in cases {
        assert_eq!(one(source).kind, kind, "{source}");
    }
}

#[test]
fn json_that_is_not_a_message_is_refused_with_a_reason() {
    let cases = [
        ("null", "neither an object nor an array"),
        (" 1e400 ", "neither an object nor an array"),
        (r#""text""#, "neither an object nor an array"),
        ("{}", "`jsonrpc` is not \"2.0\""),
        (r#"{"method":"a"}"#, "`jsonrpc` is not \"2.0\""),
        (r#"{"jsonrpc":2.0,"method":"a"}"#, "`jsonrpc` is not \"2.0\""),
        (r#"{"jsonrpc":"2.0"}"#, "no method, no result and no error"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "no method, no result and no error"),
        (r#"{"jsonrpc":"2.0","method":1}"#, "`method` is not a string"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "`id` is neither a string nor a number"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, "`id` is neither a string nor a number"),
        (r#"[{"jsonrpc":"2.0","method":"a"},1]"#, "an element of the batch is not an object"),
        (r#"[[{"jsonrpc":"2.0","method":"a"}]]"#, "an element of the batch is not an object"),
        (r#"[{"jsonrpc":"2.0","method":"a"},{}]"#, "`jsonrpc` is not \"2.0\""),
    ];
    for (source, why) in cases {
        match Message::read(source.as_bytes()) {
            Err(fault @ Malformed::NotAMessage(found)) => {
                assert_eq!((found, fault.code()), (why, codes::INVALID_REQUEST), "{source}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
    assert!(matches!(Message::read(b" [ ] "), Err(Malformed::EmptyBatch)));
}

#[test]
fn bytes_that_are_not_json_are_a_parse_error() {
    let cases: [&[u8]; 16] = [
        b"",
        b" \n",
        b"Listening on port 3000",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"a\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"x\":\"\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xed\xa0\x80\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\"",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\"}}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\"} {}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"a\nb\":1}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"x\":01}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"x\":\"\\x\"}",
        b"[{\"jsonrpc\":\"2.0\",\"method\":\"a\"},1,]",
        b"\x0b{\"jsonrpc\":\"2.0\",\"method\":\"a\"}",
    ];
    for source in cases {
        let read = Message::read(source);
        assert!(matches!(&read, Err(fault) if fault.code() == codes::PARSE), "{}: {read:?}", source.escape_ascii());
    }
}

#[test]
fn deep_nesting_is_accepted() {
    let deep = json::deep(100_000);
    let source =
        format!(r#"{{"jsonrpc":"2.0","x":{deep},"id":1,"method":"tools/call","params":{{"y":{deep},"name":"n"}}}}"#);
    assert_eq!(one(&source).target().as_deref(), Some("n"));
    let batch = format!("[{source},{source}]");
    assert_eq!(Message::read(batch.as_bytes()).expect("a batch").envelopes().len(), 2);
    let unclosed = "[".repeat(100_000);
    assert!(matches!(Message::read(unclosed.as_bytes()), Err(Malformed::Json(_))));
}

#[test]
fn the_last_of_two_keys_counts() {
    let source = r#"{"id":1,"method":"a","jsonrpc":"1.0","id":{},"\u0069d":"z","method":"b","jsonrpc":"2.0"}"#;
    let envelope = one(source);
    assert_eq!((text(envelope.id), envelope.method.as_deref()), (Some("\"z\""), Some("b")));
    let changed = Splice::new(source.as_bytes()).replace(envelope.id.expect("an id"), "7").finish();
    assert_eq!(changed, source.replace("\"z\"", "7").into_bytes());
}

#[test]
fn half_a_surrogate_pair_is_accepted() {
    let envelope = one(r#"{"jsonrpc":"2.0","\ud800":1,"id":"\udc00","method":"x\ud800","params":{"\udfff":2}}"#);
    assert_eq!(envelope.key().expect("a key").as_str(), r#""\udc00""#);
    assert!(envelope.method.expect("a method").starts_with("x\u{fffd}"));
}

#[test]
fn ids_have_one_form() {
    let key = |text: &str| IdKey::of(&serde_json::from_str::<Box<RawValue>>(text).expect("JSON"));
    assert_eq!(key(r#""a""#), key(r#""\u0061""#));
    assert_eq!(key(r#""\/""#), key(r#""/""#));
    assert_eq!(key(r#""\u00e9""#), key("\"\u{e9}\""));
    assert_eq!(key("17"), Some(IdKey::from_number(17)));
    for (one, other) in [("1", "1.0"), ("1", "1e0"), ("0", "-0"), ("100", "1e2"), ("1E400", "1e+400")] {
        assert_eq!(key(one), key(other), "{one} and {other}");
        assert_eq!(key(other).expect("a key").as_str(), other, "the bytes are those that were written");
    }
    assert_eq!(key("5.0").and_then(|key| key.number()), Some(5));
    for (one, other) in [("1", "\"1\""), ("9007199254740992", "9007199254740993"), (r#""\\n""#, r#""\n""#)] {
        assert_ne!(key(one), key(other), "{one} and {other}");
    }
    for none in ["null", "true", "false", "[1]", "{}"] {
        assert_eq!(key(none), None, "{none}");
    }
}

#[test]
fn meta_is_read_from_the_parameters() {
    let call = one(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":1,"name":"e\u0063ho","_meta":{
            "io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":[1],
            "io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/subscriptionId":"s"}}}"#);
    let meta = call.meta();
    assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
    assert_eq!((text(meta.progress_token), text(meta.subscription)), (Some("[1]"), Some("\"s\"")));
    assert!(meta.present && meta.client_capabilities && meta.claims_modern);
    assert_eq!(text(call.progress_token()), Some("[1]"));
    assert_eq!(call.target().as_deref(), Some("echo"));

    for params in ["", r#","params":null"#, r#","params":[{"_meta":{}}]"#, r#","params":{"_meta":null}"#] {
        let source = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a"{params}}}"#);
        let meta = one(&source).meta();
        assert!(!meta.present && !meta.client_capabilities && !meta.claims_modern, "{source}");
    }
    let odd = one(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{
            "io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":[]}}}"#);
    let meta = odd.meta();
    assert!(meta.present && meta.claims_modern && !meta.client_capabilities && meta.protocol_version.is_none());
}

#[test]
fn each_method_names_its_own_target() {
    let cases = [
        ("tools/call", Some("n")),
        ("prompts/get", Some("n")),
        ("resources/read", Some("u")),
        ("tasks/get", Some("t")),
        ("tasks/update", Some("t")),
        ("tasks/cancel", Some("t")),
        ("tools/list", None),
        ("Tools/call", None),
    ];
    for (method, target) in cases {
        let source =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"n","uri":"u","taskId":"t"}}}}"#);
        assert_eq!(one(&source).target().as_deref(), target, "{method}");
    }
    assert_eq!(one(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#).target(), None);
    assert_eq!(one(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#).target(), None);
}

#[test]
fn tokens_and_ids_that_name_a_request_are_found() {
    let progress = one(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p"}}"#);
    assert_eq!((text(progress.progress_token()), text(progress.cancelled())), (Some("\"p\""), None));

    let cancelled = one(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}"#);
    assert_eq!((text(cancelled.progress_token()), text(cancelled.cancelled())), (None, Some("12")));

    let key = "io.modelcontextprotocol/subscriptionId";
    let told = format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"_meta":{{"{key}":5}}}}}}"#);
    assert_eq!(text(one(&told).subscription()), Some("5"));
    let ended = format!(r#"{{"jsonrpc":"2.0","id":5,"result":{{"_meta":{{"{key}":6}}}}}}"#);
    assert_eq!(text(one(&ended).subscription()), Some("6"));
}

#[test]
fn version_and_error_code_are_read_from_answers() {
    let welcome = one(r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#);
    assert_eq!(welcome.result_protocol_version().as_deref(), Some("2025-06-18"));
    let hello = one(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#);
    assert_eq!(hello.string_param("protocolVersion").as_deref(), Some("2025-11-25"));
    for (code, read) in [("-32022", Some(-32022)), ("1.5", None), ("\"1\"", None), ("99999999999999999999", None)] {
        let source = format!(r#"{{"jsonrpc":"2.0","id":0,"error":{{"code":{code}}}}}"#);
        assert_eq!(one(&source).error_code(), read, "{source}");
    }
}

#[test]
fn an_error_body_can_be_read() {
    let request = one(r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"a"}"#);
    let body =
        error_body(request.id, codes::UNSUPPORTED_VERSION, "not \"spoken\"\n", Some(json!({"supported": ["x"]})));
    let text = String::from_utf8(body).expect("text");
    let envelope = one(&text);
    assert_eq!((envelope.kind, envelope.key()), (EnvelopeKind::Response, request.key()));
    assert_eq!(envelope.error_code(), Some(-32022));
    let error = json!({"code": -32022, "message": "not \"spoken\"\n", "data": {"supported": ["x"]}});
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(envelope.error.expect("an error").get()).expect("JSON"),
        error
    );
    let bare = error_body(None, codes::PARSE, "m", None);
    assert_eq!(bare, br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#);
}

#[test]
fn several_parts_are_replaced_at_once() {
    let source = r#" {"jsonrpc":"2.0","params":{"_meta":{"progressToken" : 1}},"id":"x","method":"a"} "#;
    let envelope = one(source);
    let (id, token) = (envelope.id.expect("an id"), envelope.progress_token().expect("a token"));
    let mut splice = Splice::new(source.as_bytes());
    assert_eq!(splice.finish(), source.as_bytes(), "nothing is replaced yet");
    splice.replace(id, "0").replace(token, "\"long token\"").replace(id, "42");
    let expected = r#" {"jsonrpc":"2.0","params":{"_meta":{"progressToken" : "long token"}},"id":42,"method":"a"} "#;
    assert_eq!(splice.finish(), expected.as_bytes());
}

#[test]
fn a_part_of_another_message_is_a_mistake_that_changes_nothing() {
    let (source, other) =
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, r#"{"jsonrpc":"2.0","id":2,"method":"a"}"#.to_owned());
    let stranger = one(&other).id.expect("an id");
    let changed = std::panic::catch_unwind(|| Splice::new(source.as_bytes()).replace(stranger, "7").finish());
    assert_eq!(changed.is_err(), cfg!(debug_assertions), "only a debug build stops at it");
    assert_eq!(changed.unwrap_or(source.into()), source.as_bytes());
}
