//! Calls through a gateway: the duration of one, and the number per second with 16 pending. Every arm has one session,
//! and so one server; each round visits all arms. Calls one by one run on one processor, concurrent calls on all. There
//! the client uses a part of the processors too, so the processor time of the gateway is the measure of a call's cost.

use std::time::Duration;

use rustix::process::Pid;

use super::super::Plan;
use super::super::plot::{Goal, Panel};
use super::super::proc::processor_time;
use super::super::processor::on_one_processor;
use super::super::report::{Claim, Report};
use super::super::stats::Rounds;
use super::gateway::{Behind, Front, Gateway, Stage, Way};
use super::load::{AT_ONCE, Lane, RoundTrip};
use super::peers::Peer;
use super::pipe::Pipe;
use crate::step::{Failure, Outcome, say};

/// The targets of leash, relative to a bridge without promises: the p50 of a call, and the calls per second.
fn goals(behind: Behind) -> (Goal, Goal) {
    match behind {
        Behind::Stdio => (Goal::AtMost(1.1), Goal::AtLeast(0.95)),
        Behind::Http => (Goal::AtMost(1.15), Goal::AtLeast(0.92)),
    }
}

const ABOUT: &str = "an echo server, on stdio or on HTTP. The floor is a bare single-threaded bridge on hyper, built \
as leash is, without any guarantee: the difference to it is the cost of leash's guarantees. Calls one by one run on \
one processor, so that the kernel's placement of processes does not matter; calls at once run on all processors, with \
one session and 16 connections, and the client uses a part of them.";

pub(super) fn measure(plan: &Plan<'_>) -> Outcome<Report> {
    let effort = plan.effort;
    let stage = Stage::set(plan.workspace)?;
    let mut arms = ways(plan.all_peers).into_iter().map(|way| Arm::new(way, &stage)).collect::<Outcome<Vec<_>>>()?;
    // Interpreters with a JIT compiler need longer to warm up.
    let warm_up = effort.pick(Duration::from_millis(500), Duration::from_secs(3));
    arms.iter_mut().try_for_each(|arm| arm.sample(&stage, warm_up).map(drop))?;

    let time = effort.pick(Duration::from_millis(250), Duration::from_millis(500));
    let rounds = effort.pick(4, 25);
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            let sample = arms[index].sample(&stage, time)?;
            arms[index].samples.extend(sample);
        }
    }
    let report = Tables::of(&arms).report();
    arms.into_iter().try_for_each(|arm| arm.finish(&stage))?;
    Ok(report)
}

/// All ways that are compared.
fn ways(all_peers: bool) -> Vec<Way> {
    let mut ways = Vec::new();
    for behind in [Behind::Stdio, Behind::Http] {
        let peers = Peer::chosen(all_peers).filter(|peer| peer.can(behind)).map(Front::Peer);
        let fronts = [Front::Nothing, Front::Floor, Front::Leash].into_iter().chain(peers);
        ways.extend(fronts.map(|front| Way { front, behind }));
    }
    ways
}

/// The measurements of one round.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) trip: RoundTrip,
    /// The processor time of the gateway alone, in microseconds, with one call at a time.
    pub(super) processor_one_by_one: f64,
    pub(super) calls_per_second: f64,
    /// The same with many calls at once.
    pub(super) processor_per_call: f64,
}

/// One way, and its measurements.
struct Arm {
    way: Way,
    path: Outcome<Path>,
    samples: Vec<Sample>,
}

/// From the client to the server.
pub(super) enum Path {
    Pipe(Pipe),
    Http { lane: Lane, gateway: Box<Gateway> },
}

impl Arm {
    /// An arm that cannot be started becomes a row with the reason. Without the floor the bench fails.
    fn new(way: Way, stage: &Stage) -> Outcome<Self> {
        say("Starting", way.name());
        let mut arm = Self { way, path: Path::start(way, stage), samples: Vec::new() };
        arm.forgive().map(|()| arm)
    }

    fn forgive(&mut self) -> Outcome {
        match &self.path {
            Err(why) if self.way.is_needed() => Err(Failure::new(format!("{}: {why}", self.way.name()))),
            Err(why) => {
                say("Missing", format!("{}: {why}", self.way.name()));
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// `None` if the arm is missing, or fails now.
    fn sample(&mut self, stage: &Stage, time: Duration) -> Outcome<Option<Sample>> {
        let Ok(path) = &mut self.path else {
            return Ok(None);
        };
        match path.sample(stage, time) {
            Ok(sample) => Ok(Some(sample)),
            Err(why) => {
                self.path = Err(why);
                self.forgive().map(|()| None)
            }
        }
    }

    fn finish(self, stage: &Stage) -> Outcome {
        match self.path {
            Ok(Path::Pipe(pipe)) => pipe.finish(),
            // The result is ignored: not every peer supports DELETE, and the process is killed in any case.
            Ok(Path::Http { lane, .. }) => stage.driver.run(Duration::ZERO, lane.close()).or(Ok(())),
            Err(_) => Ok(()),
        }
    }
}

impl Path {
    fn start(way: Way, stage: &Stage) -> Outcome<Self> {
        if way == (Way { front: Front::Nothing, behind: Behind::Stdio }) {
            return stage.pipe().map(Self::Pipe);
        }
        Self::through(stage.start(way)?, stage)
    }

    /// Opens a session at a gateway.
    pub(super) fn through(gateway: Gateway, stage: &Stage) -> Outcome<Self> {
        let gateway = Box::new(gateway);
        let lane = stage.driver.run(Duration::ZERO, Lane::open(&gateway.endpoint))?;
        Ok(Self::Http { lane, gateway })
    }

    pub(super) fn sample(&mut self, stage: &Stage, time: Duration) -> Outcome<Sample> {
        let pid = self.pid();
        let start = processor_time(pid)?;
        // With one call at a time only one process works at any moment, so one processor is enough for all of them.
        let trip = on_one_processor(&self.processes(), || match self {
            Self::Pipe(pipe) => pipe.one_by_one(time),
            Self::Http { lane, .. } => stage.driver.run(time, lane.one_by_one(time)),
        })?;
        let before = processor_time(pid)?;
        let (calls, took) = match self {
            Self::Pipe(pipe) => pipe.at_once(time)?,
            Self::Http { lane, .. } => stage.driver.run(time, lane.at_once(time))?,
        };
        let processor = processor_time(pid)?.saturating_sub(before);
        Ok(Sample {
            trip,
            processor_one_by_one: before.saturating_sub(start).as_secs_f64() * 1e6 / trip.calls as f64,
            calls_per_second: calls as f64 / took.as_secs_f64(),
            processor_per_call: processor.as_secs_f64() * 1e6 / calls as f64,
        })
    }

    fn processes(&self) -> Vec<Pid> {
        match self {
            Self::Pipe(pipe) => vec![pipe.pid()],
            Self::Http { gateway, .. } => gateway.processes(),
        }
    }

    fn pid(&self) -> Pid {
        match self {
            Self::Pipe(pipe) => pipe.pid(),
            Self::Http { gateway, .. } => gateway.pid(),
        }
    }
}

/// The samples, one table per quantity. Only of arms that were there in every round.
struct Tables<'a> {
    arms: &'a [Arm],
    p50: Rounds,
    p99: Rounds,
    calls: Rounds,
    processor: Rounds,
}

impl<'a> Tables<'a> {
    fn of(arms: &'a [Arm]) -> Self {
        let table = |value: fn(&Sample) -> f64| {
            let whole = arms.iter().filter(|arm| arm.path.is_ok());
            Rounds::of(whole.map(|arm| arm.samples.iter().map(value).collect()).collect())
        };
        Self {
            arms,
            p50: table(|sample| sample.trip.p50),
            p99: table(|sample| sample.trip.p99),
            calls: table(|sample| sample.calls_per_second),
            processor: table(|sample| sample.processor_per_call),
        }
    }

    fn report(&self) -> Report {
        let mut report = Report::new(
            format!("Calls through a gateway, one by one and {AT_ONCE} at once"),
            ABOUT,
            ["path", "p50 µs [95 %]", "to floor [95 %]", "p99 µs", "calls/s [95 %]", "to floor [95 %]", "CPU µs/call"],
        );
        let mut trips = Panel::ratios("p50 of a call, as a multiple of the floor's");
        let mut rates = Panel::ratios("calls per second, as a multiple of the floor's");
        for arm in self.arms {
            let (way, name) = (arm.way, arm.way.name());
            let floor = self.position(Way { front: Front::Floor, ..way });
            let (index, floor) = match (&arm.path, self.position(way), floor) {
                (Ok(_), Some(index), Some(floor)) => (index, floor),
                (found, ..) => {
                    let why = found.as_ref().err().map(Failure::to_string);
                    report.missing(&name, &why.unwrap_or_else(|| "there is nothing to compare it to".into()));
                    trips.missing(&name, way.tone());
                    rates.missing(&name, way.tone());
                    continue;
                }
            };
            let (trip, rate) = (self.p50.ratio(index, floor), self.calls.ratio(index, floor));
            report.row([
                name.clone(),
                format!("{:.1}", self.p50.median(index)),
                format!("{trip:.2}"),
                format!("{:.0}", self.p99.median(index).value),
                format!("{:.0}", self.calls.median(index)),
                format!("{rate:.2}"),
                format!("{:.1}", self.processor.median(index).value),
            ]);
            trips.bar(&name, way.tone(), trip);
            rates.bar(&name, way.tone(), rate);
            if way.front == Front::Leash {
                let (p50, calls) = goals(way.behind);
                report.claim(Claim { what: format!("{name}: p50 to the floor"), unit: "", found: trip, goal: p50 });
                let what = format!("{name}: calls/s to the floor");
                report.claim(Claim { what, unit: "", found: rate, goal: calls });
            }
            report.keep(&format!("{name} p50"), "µs", &self.p50, index);
            report.keep(&format!("{name} p99"), "µs", &self.p99, index);
            report.keep(&format!("{name} calls"), "1/s", &self.calls, index);
            report.keep(&format!("{name} processor"), "µs/call", &self.processor, index);
        }
        report.panel(trips);
        report.panel(rates);
        report
    }

    /// The index of the samples of a way.
    fn position(&self, way: Way) -> Option<usize> {
        self.arms.iter().filter(|arm| arm.path.is_ok()).position(|arm| arm.way == way)
    }
}
