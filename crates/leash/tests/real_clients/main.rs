//! Real clients: the official SDKs in their eras do everything that clients do, and exit in every way; first without
//! leash, then through `leash serve`, `leash connect` and both.

mod cut;
mod directly;
mod endings;
mod road;
mod through;

use serde_json::{Value, json};
use testkit::client::{Client, Mode};

/// The acts of every client in one conversation before it exits.
const WORK: [&str; 7] = ["list", "call", "count", "progress", "cancel", "sampling", "elicitation"];

/// A module with a test for every SDK in every era that it speaks.
macro_rules! each_client {
    ($name:ident: $check:expr) => {
        mod $name {
            use super::*;

            each_client!(@ $check;
                typescript_1: TypeScript1, Legacy;
                typescript_2_legacy: TypeScript2, Legacy;
                typescript_2_auto: TypeScript2, Auto;
                typescript_2_modern: TypeScript2, Modern;
                python_1: Python1, Legacy;
                python_2_legacy: Python2, Legacy;
                python_2_auto: Python2, Auto;
                python_2_modern: Python2, Modern;
                rust_legacy: Rust, Legacy;
                rust_auto: Rust, Auto;
                rust_modern: Rust, Modern;
            );
        }
    };
    (@ $check:expr; $($name:ident: $sdk:ident, $mode:ident;)*) => {$(
        #[test]
        fn $name() {
            let check: fn(Sdk, Mode) = $check;
            check(Sdk::$sdk, Mode::$mode);
        }
    )*};
}

/// A module with a test for every SDK in the era with sessions.
macro_rules! each_legacy_client {
    ($name:ident: $check:expr) => {
        mod $name {
            use super::*;

            each_legacy_client!(@ $check;
                typescript_1: TypeScript1;
                typescript_2: TypeScript2;
                python_1: Python1;
                python_2: Python2;
                rust: Rust;
            );
        }
    };
    (@ $check:expr; $($name:ident: $sdk:ident;)*) => {$(
        #[test]
        fn $name() {
            let check: fn(Sdk) = $check;
            check(Sdk::$sdk);
        }
    )*};
}

use {each_client, each_legacy_client};

/// Checks the outcomes of a client's [`WORK`]. `remembers`: two calls reach the same counter.
fn check_acts(client: &mut Client, mode: Mode, remembers: bool) {
    let connected = client.outcome("connect");
    assert_eq!(connected["version"], if mode == Mode::Legacy { "2025-11-25" } else { "2026-07-28" });
    check_list(&client.outcome("list"));
    assert_eq!(client.outcome("call")["text"], "hello, wörld ✓");
    assert_eq!(client.outcome("count")["counts"], json!(["1", if remembers { "2" } else { "1" }]));
    let progress = client.outcome("progress");
    assert_eq!(progress["reports"], json!([[0, 4], [1, 4], [2, 4], [3, 4], [4, 4]]));
    assert_eq!(progress["text"], "slept 200 ms");
    assert_eq!(client.outcome("cancel"), json!({"act": "cancel", "call": "cancelled", "cancelled": 1}));
    assert_eq!(client.outcome("sampling")["text"], "LLM response: four");
    let user = r#"User response: action=accept, content={"name":"Ada"}"#;
    assert_eq!(client.outcome("elicitation")["text"], user);
}

fn check_list(list: &Value) {
    let names = |kind: &str| list[kind].as_array().cloned().unwrap_or_default();
    let tools = names("tools");
    assert_eq!(tools.first().and_then(Value::as_str), Some("test_simple_text"));
    assert_eq!(tools.last().and_then(Value::as_str), Some("census"));
    assert_eq!([tools.len(), names("resources").len(), names("prompts").len()], [38, 3, 5], "{list}");
}

/// Checks the end of a client that only closes, as most do.
fn check_close(client: &mut Client) {
    assert_eq!(client.outcome("close"), json!({"act": "close"}));
    assert!(client.wait().success());
}
