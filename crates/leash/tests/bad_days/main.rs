//! Invalid input and broken environments: a clear message, the documented exit code, and no survivors.

mod attacks;
mod command;
mod containment;
mod first_process;
mod grace;
mod headless;
mod joined_namespaces;
mod leavers;
mod ledger;
mod limits;
mod nested;
mod receipts_directory;
mod runtime_directory;
mod signals;
mod spared;
mod standard_descriptors;
mod stopped;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Pid;
use testkit::host::{Host, Manner};
use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::wait::LIMIT;

/// Exit codes of leash itself.
const FAILED: i32 = 125;
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

fn answer(command: &mut Command) -> Answer {
    command.output().expect("cannot start leash").into()
}

/// Checks that leash refuses with `code`, says what failed and what to do, prints nothing on stdout, and leaves
/// nothing.
fn check_refusal(scene: &Scene, command: &mut Command, code: i32) -> Answer {
    let answer = answer(command);
    assert_eq!(answer.code, code, "{answer:?}");
    assert!(answer.stderr.contains("error: ") && answer.stderr.contains("hint: "), "{answer:?}");
    assert_eq!(answer.stdout, "");
    check_gone(scene, &[]);
    answer
}

fn check_gone(scene: &Scene, others: &[Pid]) {
    if let Err(left) = scene.wait_gone(others) {
        panic!("{left}\n{}", scene.stderr());
    }
}

/// `leash run OPTIONS -- zoo exit 0`.
fn trivial(scene: &Scene, options: &[&str]) -> Command {
    let mut command = scene.leash(["run"]);
    command.args(options).arg("--").arg(scene.zoo_path()).args(["exit", "0"]);
    command
}

/// The only record in the ledger.
fn record_file(scene: &Scene) -> Option<PathBuf> {
    scene.ledger().into_iter().find(|path| path.extension().is_some_and(|kind| kind == "json"))
}

/// Starts a host on `scene` with a complete tree behind `leash run`.
fn start(scene: &mut Scene, manner: &Manner, options: &[&str], tree: &str) -> Host {
    let words = scene.run_words(options, &scene.tree::<&str>(tree, []));
    start_words(scene, manner, &words)
}

fn start_words(scene: &mut Scene, manner: &Manner, words: &[OsString]) -> Host {
    let host = scene.host(manner, None, words);
    if let Err(heard) = scene.census().wait_ready(LIMIT) {
        panic!("the tree did not come up, only: {heard}\n{}", scene.stderr());
    }
    host
}
