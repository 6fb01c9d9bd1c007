//! The looks of the output: control characters, the width of tables, colours, and short ids.

mod colours;
mod errors;
mod escaped;
mod ids;
mod width;

use std::ffi::OsString;

use serde_json::Value;
use testkit::scene::Scene;

/// A script for a shell.
fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

/// The runs that are alive.
fn runs(scene: &Scene) -> Vec<Value> {
    scene.answer(["ps", "--json"]).json()["sessions"].as_array().cloned().unwrap_or_default()
}

fn receipts(scene: &Scene) -> Vec<Value> {
    scene.answer(["history", "--json"]).json()["receipts"].as_array().cloned().unwrap_or_default()
}
