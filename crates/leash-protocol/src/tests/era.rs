//! The era of a request.

use hyper::Method;

use crate::envelope::Message;
use crate::era::{self, Era, classify, is_legacy_version, is_modern_version};

const CLAIM: &str = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;

fn check(method: Method, header: Option<&str>, body: &str, era: Era) {
    let message = (!body.is_empty()).then(|| Message::read(body.as_bytes()).expect("a message"));
    assert_eq!(classify(&method, header, message.as_ref()), era, "{method} {header:?} {body}");
}

#[test]
fn a_handshake_is_legacy_whatever_version_it_names() {
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}"#;
    check(Method::POST, None, hello, Era::Legacy);
    check(Method::POST, Some("2026-07-28"), hello, Era::Legacy);
    let claiming = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize",{CLAIM}}}"#);
    check(Method::POST, None, &claiming, Era::Legacy);
    check(Method::POST, Some("2026-07-28"), &format!("[{hello}]"), Era::Legacy);
}

#[test]
fn a_claim_in_the_body_is_modern_whatever_the_header() {
    let call = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tools/call",{CLAIM}}}"#);
    for header in [None, Some("2025-11-25"), Some("2026-07-28"), Some("")] {
        check(Method::POST, header, &call, Era::Modern);
    }
    let odd = call.replace("\"2026-07-28\"", "null");
    check(Method::POST, None, &odd, Era::Modern);
    let plain = r#"{"jsonrpc":"2.0","method":"a"}"#;
    check(Method::POST, None, &format!("[{plain},{call}]"), Era::Modern);
}

#[test]
fn without_a_claim_the_header_decides() {
    for body in [
        r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        "",
    ] {
        check(Method::POST, None, body, Era::Legacy);
        check(Method::POST, Some("2025-06-18"), body, Era::Legacy);
        check(Method::POST, Some("2025-06-17"), body, Era::Legacy);
        check(Method::POST, Some("2026-07-28"), body, Era::Modern);
        check(Method::POST, Some("DRAFT-2027"), body, Era::Modern);
    }
}

#[test]
fn only_post_can_be_modern() {
    for method in [Method::GET, Method::DELETE, Method::HEAD] {
        check(method, Some("2026-07-28"), "", Era::Legacy);
    }
}

#[test]
fn versions_belong_to_one_era_or_to_none() {
    for version in era::LEGACY_VERSIONS {
        assert!(is_legacy_version(version) && !is_modern_version(version), "{version}");
    }
    assert!(era::LEGACY_VERSIONS.contains(&era::DEFAULT_LEGACY) && era::LEGACY_VERSIONS.is_sorted());
    for version in [era::MODERN, "2026-07-29", "2027-01-01", "9999-99-99", "draft", "2026-7-28", "2025-11-25 "] {
        assert!(is_modern_version(version) && !is_legacy_version(version), "{version}");
    }
    for version in ["2026-07-27", "2025-11-26", "0000-00-00", "", " "] {
        assert!(!is_modern_version(version) && !is_legacy_version(version), "{version}");
    }
}
