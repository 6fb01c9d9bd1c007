//! `cargo xtask bench`: what leash costs and how fast it is, measured on the release binary against the same thing
//! without leash, in one run. Absolute numbers are of the machine; ratios and differences are of leash.

mod http;
mod jobs;
pub(crate) mod proc;
mod processor;
mod report;
mod run;
pub(crate) mod stats;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::step::{Failure, Outcome, Step, Workspace, say};
pub(crate) use http::{play, roles};
use report::Report;

/// Says to this program, built for release and given the programs to measure, that it shall measure.
const MEASURE: &str = "--measure";

/// One question and how it is answered.
struct Bench {
    name: &'static str,
    /// Whether other gateways are measured as well, which have to be installed.
    peers: bool,
    measure: fn(Effort, &Workspace) -> Outcome<Report>,
}

/// All there are.
fn benches() -> impl Iterator<Item = &'static Bench> {
    const RUN: &[Bench] = &run::BENCHES;
    const HTTP: &[Bench] = &http::BENCHES;
    const JOBS: &[Bench] = &jobs::BENCHES;
    RUN.iter().chain(HTTP).chain(JOBS)
}

/// How much work is put into a number.
#[derive(Clone, Copy)]
pub(crate) enum Effort {
    /// Enough to see that the bench works.
    Quick,
    /// Enough to believe the number.
    Full,
}

impl Effort {
    fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| !["--quick", MEASURE].contains(flag)) {
        return Err(Failure::new(format!("bench has no `{flag}`; it has --quick")));
    }
    let benches = choose(&names)?;
    if !flags.contains(&MEASURE) {
        if benches.iter().any(|bench| bench.peers) {
            http::peers::install(workspace);
        }
        return build_and_measure(workspace, words);
    }
    warn_if_busy();
    let effort = if flags.contains(&"--quick") { Effort::Quick } else { Effort::Full };
    for bench in benches {
        say("Measuring", bench.name);
        let report = (bench.measure)(effort, workspace)?;
        println!("{}", report.markdown());
        let file = report.save(&workspace.target.join("bench"), bench.name)?;
        say("Wrote", file.display());
    }
    Ok(())
}

/// The benches with these names, or all.
fn choose(names: &[&str]) -> Outcome<Vec<&'static Bench>> {
    let known: Vec<&str> = benches().map(|bench| bench.name).collect();
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(Failure::new(format!("there is no bench `{name}`; there are: {}", known.join(", ")))),
        None => Ok(benches().filter(|bench| names.is_empty() || names.contains(&bench.name)).collect()),
    }
}

/// The clock and the driver are part of what is measured, so they are built as leash is.
fn build_and_measure(workspace: &Workspace, words: &[String]) -> Outcome {
    let packages = ["mcp-leash", "testkit", "xtask"].map(|name| format!("--package={name}"));
    workspace.cargo(["build", "--release", "--bins"]).args(packages).run()?;
    Step::new(workspace.release("xtask")).args(["bench", MEASURE]).args(words).envs(&workspace.programs()).run()
}

/// Ratios survive company, absolute numbers do not.
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
