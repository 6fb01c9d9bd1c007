//! `cargo xtask box`: a small Debian with systemd, cgroup2 and real logins, in a virtual machine. The tests in it prove
//! what the machine of a developer can't: the containment `unit` in a login session, and budgets.

mod image;
mod machine;
mod payload;

use image::Image;
use machine::{Machine, Purpose};

use crate::step::{Failure, Outcome, Workspace};

const USAGE: &str = "\
usage: cargo xtask box                   run the short list of tests in the box
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

/// The short list: the tests that need a desktop, and the matrix of ends in `unit`.
fn short_list() -> Vec<TestRun> {
    vec![TestRun::new("desktop", &[]), TestRun::new("matrix", &["unit"])]
}

/// The files with process tests that need nothing but the programs of this repository.
fn all() -> Vec<TestRun> {
    ["desktop", "matrix", "sessions", "bad_days", "commands", "library", "orphans", "jobs", "control", "pid_reuse"]
        .map(|file| TestRun::new(file, &[]))
        .into()
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let image = Image::make(workspace)?;
    match words.as_slice() {
        ["--shell"] => {
            let payload = payload::make(workspace, &[])?;
            Machine::new(workspace, &image, &payload).boot(Purpose::Shell)
        }
        [] => test(workspace, &image, &short_list()),
        ["--all"] => test(workspace, &image, &all()),
        [file, filters @ ..] if !file.starts_with('-') => test(workspace, &image, &[TestRun::new(file, filters)]),
        _ => Err(Failure::new(USAGE)),
    }
}

fn test(workspace: &Workspace, image: &Image, runs: &[TestRun]) -> Outcome {
    let payload = payload::make(workspace, runs)?;
    Machine::new(workspace, image, &payload).boot(Purpose::Tests)
}
