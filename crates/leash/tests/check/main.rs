//! `leash check` on known servers and hosts: a good one passes, and each bad one fails for its fault.

mod hosts;
mod http;
mod server;
mod stdio;
mod stopped;

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use testkit::deps::Deps;
use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::user::Who;

/// The ids of the checks with this status.
fn with(answer: &Answer, status: &str) -> Vec<String> {
    let report = answer.json();
    let rows = report["checks"].as_array().cloned().unwrap_or_default();
    let wanted = rows.iter().filter(|row| row["status"] == status);
    wanted.filter_map(|row| row["id"].as_str().map(str::to_owned)).collect()
}

/// One row.
fn row(answer: &Answer, id: &str) -> Value {
    let report = answer.json();
    let rows = report["checks"].as_array().into_iter().flatten();
    rows.clone().find(|row| row["id"] == id).cloned().unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

/// Checks that nothing is left of a check.
fn check_clean(scene: &mut Scene) {
    scene.wait_gone(&[]).expect("the check ends what it started");
    assert_eq!(scene.ledger(), Vec::<std::path::PathBuf>::new());
}

/// The user that runs the tests: the packages may be in a private directory.
fn me() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

/// A program of these tests.
fn script(name: &str) -> OsString {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check").join(name).into()
}

/// The packages; prints a note if they are missing.
fn deps() -> Option<Deps> {
    Deps::find().inspect_err(|why| testkit::note(&format!("skipped: {why}"))).ok()
}
