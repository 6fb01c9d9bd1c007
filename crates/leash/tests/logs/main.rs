//! The logs of servers: what `leash run --log` and `leash serve` keep of their stderr, and what `leash logs` shows. The host
//! gets every byte, and the server notices nothing of the copy, whatever dies or fails.

mod deaths;
mod filters;
mod hosts;
mod serve;
mod show;

use std::ffi::OsString;

use serde_json::Value;
use testkit::scene::Scene;

/// The lines of a server that `leash logs --json` prints.
fn lines(scene: &Scene, name: &str) -> Vec<String> {
    let answer = scene.answer(["logs", name, "--json"]);
    let line =
        |line: &str| serde_json::from_str::<Value>(line).expect("it is JSON")["text"].as_str().map(str::to_owned);
    answer.stdout.lines().filter_map(line).collect()
}

/// `leash run --log` with a shell script as the server `x`.
fn run_words(scene: &Scene, options: &[&str], script: &str) -> Vec<OsString> {
    let server = ["sh", "-c", script].map(OsString::from);
    scene.run_words(["--log", "--name", "x"].into_iter().chain(options.iter().copied()), &server)
}

fn check_gone(scene: &Scene) {
    scene.wait_gone(&[]).expect("nothing is left");
}
