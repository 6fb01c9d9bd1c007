//! Builds of leash next to each other: the release build with the libc of this machine, the static program of the packages,
//! and further programs (`--program`). The first one is what the others are compared with.

use std::path::{Path as File, PathBuf};
use std::time::Duration;

use super::super::plot::{Goal, Panel, Tone};
use super::super::proc::{kilobytes, raise_descriptors};
use super::super::report::{Claim, Report};
use super::super::run::memory::{Leash, Who};
use super::super::stats::Rounds;
use super::super::{Effort, Plan};
use super::gateway::{Behind, Stage};
use super::memory::{Held, open, settled};
use super::speed::{Path, Sample};
use crate::dist;
use crate::step::{Failure, Outcome, say};

/// The static program may cost 5 % more than the release build.
const COST: Goal = Goal::AtMost(1.05);
const CALLS: Goal = Goal::AtLeast(0.95);

/// The number of idle sessions of a filled gateway.
const SESSIONS: usize = 1_000;

const ABOUT: &str = "the same leash, compiled and linked in different ways. CPU is the processor time of the gateway alone. \
Memory is that of the gateway's process with one session and with 1,000, and of the two processes of `leash run`, \
by `smaps_rollup`.";

/// A program, with its name in the table.
struct Build {
    name: String,
    program: PathBuf,
}

/// The samples of one quantity, of each build.
struct Quantity {
    name: String,
    unit: &'static str,
    goal: Option<Goal>,
    samples: Vec<Vec<f64>>,
}

pub(super) fn measure(plan: &Plan<'_>) -> Outcome<Report> {
    raise_descriptors(2 * SESSIONS as u64 + 500);
    let stage = Stage::set(plan.workspace)?;
    let builds = builds(plan)?;
    let mut quantities = Vec::new();
    for behind in [Behind::Stdio, Behind::Http] {
        quantities.extend(calls(&stage, &builds, behind, plan.effort)?);
    }
    quantities.extend(sessions(&stage, &builds, plan.effort)?);
    quantities.extend(trees(&builds, plan.effort)?);
    Ok(report(&builds, quantities))
}

/// The builds that are there, the release build first.
fn builds(plan: &Plan<'_>) -> Outcome<Vec<Build>> {
    let mut builds = vec![Build { name: "release".into(), program: testkit::leash::leash().to_owned() }];
    let program = dist::static_program(plan.workspace);
    if program.exists() {
        builds.push(Build { name: "static".into(), program });
    }
    for program in plan.programs {
        let path = std::fs::canonicalize(program).map_err(Failure::at(program))?;
        builds.push(Build { name: program.display().to_string(), program: path });
    }
    match builds.len() {
        1 => Err(Failure::new("there is only one build to measure; `cargo xtask dist` makes the static one")),
        _ => Ok(builds),
    }
}

/// Calls in one session.
fn calls(stage: &Stage, builds: &[Build], behind: Behind, effort: Effort) -> Outcome<Vec<Quantity>> {
    let start = |build: &Build| Path::through(stage.start_build(&build.program, behind)?, stage);
    let mut paths = builds.iter().map(start).collect::<Outcome<Vec<_>>>()?;
    let name = match behind {
        Behind::Stdio => "stdio",
        Behind::Http => "HTTP",
    };
    say("Calling", name);
    let time = effort.pick(Duration::from_millis(200), Duration::from_millis(400));
    paths.iter_mut().try_for_each(|path| path.sample(stage, time).map(drop))?;
    let mut samples: Vec<Vec<Sample>> = builds.iter().map(|_| Vec::new()).collect();
    for round in 0..effort.pick(4, 40) {
        for turn in 0..builds.len() {
            let index = (round + turn) % builds.len();
            samples[index].push(paths[index].sample(stage, time)?);
        }
    }
    let quantity = |what: &str, unit, goal, value: fn(&Sample) -> f64| Quantity {
        name: format!("{what}, {name}"),
        unit,
        goal,
        samples: samples.iter().map(|samples| samples.iter().map(value).collect()).collect(),
    };
    Ok(vec![
        quantity("CPU of a call, one by one", "µs", Some(COST), |sample| sample.processor_one_by_one),
        quantity("CPU of a call, 16 at once", "µs", Some(COST), |sample| sample.processor_per_call),
        quantity("p50 of a call, one by one", "µs", None, |sample| sample.trip.p50),
        quantity("calls, 16 at once", "1/s", Some(CALLS), |sample| sample.calls_per_second),
    ])
}

/// The memory of a gateway in front of an HTTP server, with one session and with many.
fn sessions(stage: &Stage, builds: &[Build], effort: Effort) -> Outcome<Vec<Quantity>> {
    let mut quantities = Vec::new();
    for held in [Held::Alone, Held::Connected] {
        say("Filling", held.name());
        let states = ["1 session with", "1,000 sessions with"];
        let of =
            |field: &str| states.map(|state| memory(builds, &format!("gateway, {state} {}, {field}", held.name())));
        let (mut private, mut pss) = (of("private"), of("PSS"));
        for _ in 0..effort.pick(1, 5) {
            for (index, build) in builds.iter().enumerate() {
                for (state, (dirty, share)) in fill(stage, &build.program, held)?.into_iter().enumerate() {
                    private[state].samples[index].push(dirty);
                    pss[state].samples[index].push(share);
                }
            }
        }
        quantities.extend(private.into_iter().chain(pss));
    }
    Ok(quantities)
}

/// Private and proportional memory in the two states.
fn fill(stage: &Stage, program: &File, held: Held) -> Outcome<[(f64, f64); 2]> {
    let gateway = stage.start_build(program, Behind::Http)?;
    let read = || {
        let field = |field: &'static str| settled(&|| kilobytes(gateway.pid(), field));
        Ok((field("Private_Dirty:")?, field("Pss:")?))
    };
    let _first = stage.driver.run(Duration::ZERO, open(&gateway, held, 1))?;
    let one = read()?;
    let _others = stage.driver.run(Duration::ZERO, open(&gateway, held, SESSIONS - 1))?;
    Ok([one, read()?])
}

/// The memory of supervisor and keeper, with all builds alive at the same time.
fn trees(builds: &[Build], effort: Effort) -> Outcome<Vec<Quantity>> {
    say("Running", "leash run");
    let each = [
        ("supervisor, private", Who::Supervisor, "Private_Dirty:"),
        ("supervisor, PSS", Who::Supervisor, "Pss:"),
        ("keeper, private", Who::Keeper, "Private_Dirty:"),
        ("keeper, PSS", Who::Keeper, "Pss:"),
        ("supervisor and keeper, private", Who::Both, "Private_Dirty:"),
    ];
    let round = |_| builds.iter().map(|build| Leash::start_build(&build.program)).collect::<Outcome<Vec<_>>>();
    let alive = (0..effort.pick(3, 12)).map(round).collect::<Outcome<Vec<_>>>()?;
    let mut quantities = Vec::new();
    for (name, who, field) in each {
        let mut quantity = memory(builds, name);
        for round in &alive {
            for (samples, leash) in quantity.samples.iter_mut().zip(round) {
                samples.push(leash.read(who, field)?);
            }
        }
        quantities.push(quantity);
    }
    Ok(quantities)
}

fn memory(builds: &[Build], name: &str) -> Quantity {
    Quantity { name: name.to_owned(), unit: "kB", goal: None, samples: builds.iter().map(|_| Vec::new()).collect() }
}

fn report(builds: &[Build], quantities: Vec<Quantity>) -> Report {
    let head = ["what", "build", "median [95 %]", "to the release build [95 %]"];
    let mut report = Report::new("Builds of leash: with the libc of the machine, and static", ABOUT, head);
    let mut panel = Panel::ratios("CPU of a call, as a multiple of the release build's").goal(COST);
    for Quantity { name, unit, goal, samples } in quantities {
        let rounds = Rounds::of(samples);
        for (index, build) in builds.iter().enumerate() {
            let (median, ratio) = (rounds.median(index), rounds.ratio(index, 0));
            let shown = if unit == "µs" { format!("{median:.1} {unit}") } else { format!("{median:.0} {unit}") };
            report.row([name.clone(), build.name.clone(), shown, format!("{ratio:.3}")]);
            report.keep(&format!("{name}, {}", build.name), unit, &rounds, index);
            if let (Some(goal), 1..) = (goal, index) {
                let what = format!("{}: {name}, to the release build", build.name);
                report.claim(Claim { what, unit: "", found: ratio, goal });
                if goal == COST {
                    panel.bar(format!("{}, {name}", build.name), Tone::Leash, ratio);
                }
            }
        }
    }
    report.panel(panel);
    report
}
