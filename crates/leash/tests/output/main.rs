//! The looks of the output: control characters, the width of tables, colours, and short ids.

mod colours;
mod errors;
mod escaped;
mod ids;
mod waiting;
mod width;

use std::ffi::OsString;
use std::process::Stdio;

use serde_json::Value;
use testkit::pty::Pty;
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

/// The output of a command whose stdout is a terminal with this many columns.
fn on_terminal(scene: &Scene, columns: u16, words: &[&str], variables: &[(&str, &str)]) -> String {
    let pty = Pty::open().expect("a terminal");
    pty.resize(columns).expect("it can be resized");
    let mut command = scene.leash(words);
    command.envs(variables.iter().copied()).stdout(pty.terminal().expect("its other side")).stderr(Stdio::null());
    let mut child = command.spawn().expect("leash starts");
    // The command holds the terminal as well.
    drop(command);
    let screen = pty.screen();
    child.wait().expect("it ends");
    screen
}
