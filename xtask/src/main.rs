//! The maintenance tasks of this repository: `cargo xtask setup|test|check|dist|box|bench|chaos|counterparts|pictures|soak|sanitise`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to the person who runs it")]
#![expect(clippy::disallowed_methods, reason = "it starts cargo and package managers, and waits for them")]

mod bench;
mod chaos;
mod check;
mod counterparts;
mod debian;
mod dist;
mod pictures;
mod sanitise;
mod setup;
mod soak;
mod step;
mod svg;
mod test;
mod vm;
mod ward;

use std::process::ExitCode;

use step::{Failure, Outcome, Workspace};

const USAGE: &str = "\
usage: cargo xtask setup                      install what the tests need into target/deps
       cargo xtask test [NEXTEST ARGUMENT...]  set up, build, run every test (or those asked for)
       cargo xtask check                      format, lints, docs, dependencies, tidiness
       cargo xtask dist [--check] [--crates] [--target TARGET]
                                              the packages that users install; results in target/dist
       cargo xtask box [--short | --all | --shell | TEST [FILTER...]]
                                              tests in a virtual machine with systemd, cgroup2 and real logins
       cargo xtask bench [--quick] [--all-peers] [--json] [--plots DIR] [NAME...]
                                              measure the release binary; results in target/bench
       cargo xtask chaos [--minutes N] [--seed N] [--replay FILE] [--json]
                                              everything that can happen, in an order that the seed decides; results in
                                              target/chaos
       cargo xtask counterparts [--json] [NAME...]
                                              `leash check` on real servers and hosts; results in target/counterparts
       cargo xtask pictures                   the pictures of `leash top` and of the page, in docs/pictures
       cargo xtask soak [--minutes N] [--http N] [--stdio N] [--json]
                                              many sessions that come and go; results in target/soak
       cargo xtask sanitise [PART...] [--json]
                                              dependencies, unsafe, memory, coverage; results in target/sanitise";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Outcome {
    let (chore, rest) = words.split_first().ok_or_else(|| Failure::new(USAGE))?;
    // The benches start this many times; it is not a task for people.
    if chore == "play" {
        return bench::play(rest);
    }
    let workspace = Workspace::find()?;
    match (chore.as_str(), rest) {
        ("setup", []) => setup::install(&workspace).map(drop),
        ("test", _) => test::run(&workspace, rest),
        ("check", []) => check::run(&workspace),
        ("dist", _) => dist::run(&workspace, rest),
        ("box", _) => vm::run(&workspace, rest),
        ("bench", _) => bench::run(&workspace, rest),
        ("chaos", _) => chaos::run(&workspace, rest),
        ("counterparts", _) => counterparts::run(&workspace, rest),
        ("pictures", []) => pictures::run(&workspace),
        ("soak", _) => soak::run(&workspace, rest),
        ("sanitise", _) => sanitise::run(&workspace, rest),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::new(USAGE)),
    }
}
