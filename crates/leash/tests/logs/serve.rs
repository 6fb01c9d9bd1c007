//! Servers behind a gateway: their stderr is always kept, and a crash is in the receipt.

use std::ffi::OsString;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::lines;

const LATEST: &str = "2025-11-25";

fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

fn receipts(scene: &Scene) -> Vec<Value> {
    let answer = scene.answer(["history", "--json"]).json();
    answer["receipts"].as_array().cloned().unwrap_or_default()
}

#[test]
fn crash_is_in_the_log_the_receipt_and_the_error() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = r"printf 'starting\nError: no \033[31mAPI key\n' >&2; exit 3";
    let gateway = Gateway::single(&scene, &[], &shell(script));
    let reply = gateway.post("x", None, &initialize(LATEST));
    let line = r"Error: no \u{1b}[31mAPI key";
    assert_eq!(reply.json()["error"]["data"]["stderr"], json!(["starting", line]), "{}", reply.text());
    let receipt = wait::until("the receipt", || receipts(&scene).pop());
    assert_eq!(receipt["holdings"][0]["stderr"], json!(["starting", line]), "{receipt:#}");
    assert_eq!(lines(&scene, "x"), ["starting", "Error: no \u{1b}[31mAPI key"]);
    let shown = scene.answer(["history"]).stdout;
    assert!(shown.contains(&format!("its stderr ends with: {line}")), "{shown}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A server that ends when it is asked to has no crash in its receipt.
#[test]
fn orderly_end_has_no_lines_in_its_receipt() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &["--grace", "300ms"], &shell("echo hello >&2; read line; read end; exit 1"));
    let mut client = gateway.connect();
    client.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    wait::until("the line", || (lines(&scene, "x") == ["hello"]).then_some(()));
    drop(client);
    let receipt = wait::until("the receipt", || receipts(&scene).pop());
    assert!(receipt["holdings"][0].get("stderr").is_none(), "{receipt:#}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The server says goodbye after its gateway was killed: the keeper still writes the log.
#[test]
fn log_outlives_the_gateway() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = "trap '' PIPE; echo hello >&2; while read line; do :; done; echo goodbye >&2";
    let gateway = Gateway::single(&scene, &["--grace", "2s"], &shell(script));
    let mut client = gateway.connect();
    client.send("POST", "/x/mcp", &POST, initialize(LATEST).as_bytes()).expect("it is written");
    wait::until("the line", || (lines(&scene, "x") == ["hello"]).then_some(()));
    gateway.signal(Signal::KILL);
    wait::until("the last line", || (lines(&scene, "x") == ["hello", "goodbye"]).then_some(()));
    drop((client, gateway));
    scene.wait_gone(&[]).expect("nothing is left");
}
