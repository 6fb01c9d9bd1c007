//! `cargo xtask box`: a small Debian with systemd, cgroup2 and real logins, in a virtual machine. The tests in it prove
//! what the machine of a developer can't: the containment `unit` in a login session, and budgets.

mod image;
mod machine;
mod payload;

use std::path::PathBuf;

pub(crate) use image::{Image, requirements};
use machine::{Machine, Purpose};
pub(crate) use payload::Programs;

use crate::step::{Failure, Outcome, SELECTION, Workspace, say};

const USAGE: &str = "\
usage: cargo xtask box                   run the tests that need a desktop in the box
       cargo xtask box --short           run the short list of them that `cargo xtask test` runs, too
       cargo xtask box --all             run all process tests in the box
       cargo xtask box --shell           log in to the box on this terminal
       cargo xtask box TEST [FILTER...]  run the tests of one file in the box, as `desktop logout`";

/// Tests to run in the box: one file of tests, and the names that `libtest` selects by.
pub(crate) struct TestRun {
    file: String,
    filters: Vec<String>,
}

impl TestRun {
    fn new(file: &str, filters: &[&str]) -> Self {
        Self { file: file.to_owned(), filters: filters.iter().map(|&filter| filter.to_owned()).collect() }
    }
}

/// The short list: at least one test of each kind, in some minutes.
fn short_list() -> Vec<TestRun> {
    let tests = [
        "logins::over_ssh",
        "logins::on_a_terminal",
        "logins::in_systemd_run",
        "ends::logout",
        "ends::user_manager_is_killed",
        "budgets::",
        "shared::session_leaks",
        "watch::hook_and_watch_together",
    ];
    vec![TestRun::new("desktop", &tests)]
}

/// All tests that need a desktop, and the matrix in `unit`.
fn desktop_list() -> Vec<TestRun> {
    // The replay uses all memory of the box, so it runs alone. The first half of the test with a reboot comes last: its
    // tree must live until then.
    vec![
        TestRun::new("desktop", &["--skip", "replay", "--skip", "reboot"]),
        TestRun::new("matrix", &["unit::"]),
        TestRun::new("desktop", &["replay"]),
        TestRun::new("desktop", &["reboot::before"]),
    ]
}

/// The files with process tests that need nothing but the programs of this repository.
fn all() -> Vec<TestRun> {
    let others = ["sessions", "bad_days", "commands", "library", "orphans", "jobs", "control", "pid_reuse"];
    let others = others.map(|file| TestRun::new(file, &[]));
    let desktop = desktop_list().into_iter().filter(|run| run.file == "desktop");
    [TestRun::new("matrix", &[])].into_iter().chain(others).chain(desktop).collect()
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--shell"] => {
            let image = Image::make(workspace)?;
            let payload = make_payload(workspace, &[])?;
            Machine::new(workspace, &image, &payload).boot(Purpose::Shell)
        }
        [] => test(workspace, &Image::make(workspace)?, &desktop_list()),
        ["--short"] => run_short_list(workspace, &Image::make(workspace)?),
        ["--all"] => test(workspace, &Image::make(workspace)?, &all()),
        [file, filters @ ..] if !file.starts_with('-') => {
            test(workspace, &Image::make(workspace)?, &[TestRun::new(file, filters)])
        }
        _ => Err(Failure::new(USAGE)),
    }
}

/// Runs the short list in a box with this image.
pub(crate) fn run_short_list(workspace: &Workspace, image: &Image) -> Outcome {
    test(workspace, image, &short_list())
}

/// Runs the tests that need a desktop with instrumented programs. Returns the archive of their counters, and whether all tests passed.
/// The error says why this machine cannot run the box.
pub(crate) fn count(workspace: &Workspace, programs: &Programs<'_>) -> Outcome<(PathBuf, bool)> {
    let image = Image::make(workspace)?;
    let payload = payload::make(workspace, programs, &desktop_list())?;
    let (machine, counters) = Machine::new(workspace, &image, &payload).with_counters()?;
    let ended = machine.boot(Purpose::Tests);
    if let Err(failure) = &ended {
        say("Failed", failure);
    }
    Ok((counters, ended.is_ok()))
}

fn test(workspace: &Workspace, image: &Image, runs: &[TestRun]) -> Outcome {
    let payload = make_payload(workspace, runs)?;
    Machine::new(workspace, image, &payload).boot(Purpose::Tests)
}

/// The second disk with the release binary.
fn make_payload(workspace: &Workspace, runs: &[TestRun]) -> Outcome<PathBuf> {
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;
    let cargo = |words: &[&str]| workspace.cargo(words).args(SELECTION);
    payload::make(workspace, &Programs { variables: workspace.programs(), cargo: &cargo, instrumented: false }, runs)
}
