//! `cargo xtask bench`: the cost and speed of leash, measured on the release binary against the same thing without
//! leash and against other gateways, in one run. Absolute numbers depend on the machine; ratios describe leash.

mod document;
mod http;
mod jobs;
mod order;
mod plot;
pub(crate) mod proc;
mod processor;
mod report;
mod run;
pub(crate) mod stats;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};

use crate::step::{Failure, Outcome, Step, Workspace, say};
use crate::{dist, setup, ward};
use document::{Document, Section, Setting};
pub(crate) use http::{play, roles};
use order::{Effort, MEASURE, Order};
use report::Report;

/// One measurement.
struct Bench {
    name: &'static str,
    /// True if other gateways are measured as well, which have to be installed.
    peers: bool,
    measure: fn(&Plan<'_>) -> Outcome<Report>,
}

/// The parameters of a run.
struct Plan<'a> {
    effort: Effort,
    /// Measure also the peers that have to be compiled.
    all_peers: bool,
    /// Further builds of leash, for the bench `builds`.
    programs: &'a [PathBuf],
    workspace: &'a Workspace,
}

/// All benches.
fn benches() -> impl Iterator<Item = &'static Bench> {
    const RUN: &[Bench] = &run::BENCHES;
    const HTTP: &[Bench] = &http::BENCHES;
    const JOBS: &[Bench] = &jobs::BENCHES;
    RUN.iter().chain(HTTP).chain(JOBS)
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    if order.measure {
        return measure(workspace, &order, words);
    }
    if order.benches.iter().any(|bench| bench.peers) {
        http::peers::install(workspace, order.all_peers);
    }
    if order.benches.iter().any(|bench| bench.name == "builds") {
        let built = dist::build_program(workspace);
        built.unwrap_or_else(|why| say("Missing", format!("the static program: {why}")));
    }
    let mut variables = Vec::from(workspace.programs());
    if order.benches.iter().any(|bench| bench.name == run::INSTRUCTIONS) {
        variables.extend(setup::install_valgrind(workspace)?.variables());
    }
    build_and_measure(workspace, words, &variables)
}

/// The clock and the load generator affect the result, so they are built as leash is.
fn build_and_measure(workspace: &Workspace, words: &[String], variables: &[(&'static str, OsString)]) -> Outcome {
    let packages = ["mcp-leash", "testkit", "xtask"].map(|name| format!("--package={name}"));
    workspace.cargo(["build", "--release", "--bins"]).args(packages).run()?;
    let step = Step::new(workspace.release("xtask")).args(["bench", MEASURE]).args(words);
    ward::run(step.envs(variables))
}

/// Runs one bench after the other. A failed bench does not stop the others.
fn measure(workspace: &Workspace, order: &Order, words: &[String]) -> Outcome {
    // Our parent cleans up the processes that we start, so we must not outlive it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::new(format!("cannot be tied to cargo: {error}")))?;
    warn_if_busy();
    let plan = Plan { effort: order.effort, all_peers: order.all_peers, programs: &order.programs, workspace };
    let peers = match order.benches.iter().any(|bench| bench.peers) {
        true => http::peers::installed(workspace, order.all_peers),
        false => Vec::new(),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != MEASURE).collect();
    let command = [&["cargo", "xtask", "bench"], &words[..]].concat().join(" ");
    let setting = Setting::look(workspace, order.effort, command, peers);
    let mut document = Document { setting, sections: Vec::new() };
    let dir = workspace.target.join("bench");
    let docs = workspace.root.join("docs/bench");
    let plots = order.plots.as_deref().or(order.effort.pick(None, Some(docs.as_path())));
    for bench in &order.benches {
        say("Measuring", bench.name);
        let start = now();
        let found = (bench.measure)(&plan);
        if let Err(why) = &found {
            say("Failed", format!("{}: {why}", bench.name));
        }
        document.sections.push(Section { name: bench.name, found, took: now() - start });
        // Saved after each bench, so that an interrupted run keeps the earlier results.
        document.save(&dir, plots)?;
    }
    match order.json {
        true => println!("{:#}", document.json()),
        false => println!("{}", document.markdown()),
    }
    finish(&document, &dir, plots)
}

/// Prints the paths of the results, and fails if something is missing.
fn finish(document: &Document, dir: &Path, plots: Option<&Path>) -> Outcome {
    for section in &document.sections {
        say("Measured", format!("{} in {:.0} s", section.name, section.took.as_secs_f64()));
    }
    say("Wrote", dir.join("report.md").display());
    if let Some(plots) = plots {
        say("Wrote", format!("{}/*.svg", plots.display()));
    }
    let failed = document.sections.iter().filter(|section| section.found.is_err()).map(|section| section.name);
    match failed.collect::<Vec<_>>()[..] {
        [] => Ok(()),
        ref names => Err(Failure::new(format!("not measured: {}", names.join(", ")))),
    }
}

/// Warns about other load: ratios stay valid beside it, absolute numbers do not.
fn warn_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let recent: f64 = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if recent > cpus as f64 / 2.0 {
        say("Busy", format!("the load is {recent} on {cpus} processors: believe ratios only"));
    }
}

/// Time on a clock that only goes forward.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
