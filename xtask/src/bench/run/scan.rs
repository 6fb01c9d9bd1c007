//! The cost of one scan of all processes (`leash reap` without `--yes`), and the cost of an idle `leash watch`.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use super::super::plot::{Goal, Panel, Tone};
use super::super::proc::{kilobytes, processor_time};
use super::super::report::{Claim, Report};
use super::super::stats::{Estimate, Rounds};
use super::super::{Effort, millis, now};
use crate::step::{Failure, Outcome};

/// The numbers of processes besides those of the machine.
const CROWDS: [usize; 3] = [100, 1_000, 5_000];

/// The interval of the watch in this bench. The default is a minute, which would take long to measure.
const INTERVAL: Duration = Duration::from_secs(1);

/// The warm-up time of the watch, and the measured time.
struct Times {
    warm_up: Duration,
    measured: Duration,
}

/// After 13 scans no process is new. Every tenth scan reads all processes; this is twice that.
const WHOLE: Times = Times { warm_up: Duration::from_secs(13), measured: Duration::from_secs(20) };

/// Enough to see that the bench works.
const SHORT: Times = Times { warm_up: Duration::from_secs(2), measured: Duration::from_secs(5) };

/// Scans in an hour.
const HOURLY: f64 = 60.0;

/// The target for 5,000 processes.
const LOOK_MS: Goal = Goal::AtMost(150.0);
const WATCH_KB: Goal = Goal::AtMost(5_000.0);
const WATCH_SECONDS: Goal = Goal::AtMost(3.6);

const ABOUT: &str = "one `leash reap` without `--yes`, and `leash watch` at rest with a look a minute. The number of \
processes is in addition to the machine's own. The floor reads `/proc/PID/stat` of every process once, in a process \
that runs already. Instructions are callgrind's. Memory is at rest; during a look, `watch` has more for a moment.";

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut report = Report::new(
        "A look at all processes",
        ABOUT,
        [
            "processes",
            "median ms [95 %]",
            "to the floor [95 %]",
            "max ms",
            "CPU ms [95 %]",
            "instructions",
            "watch: PSS kB",
            "watch: CPU ms a look",
            "watch: CPU s an hour",
        ],
    );
    let mut times = Panel::new("ms of a look, with a target for 5,000 processes").goal(LOOK_MS);
    for crowd in CROWDS.into_iter().take(effort.pick(2, CROWDS.len())) {
        let mut scene = super::scene()?;
        let words = scene.tree("setsid", ["--size", &crowd.to_string()]);
        let host = scene.host(&Default::default(), None, &words);
        scene.census().wait_ready(LIMIT).map_err(|heard| Failure::new(format!("no crowd of {crowd}: {heard}")))?;
        let rounds = looks(&scene, effort.pick(5, 30))?;
        // Only the largest crowd has a target.
        let watch = match effort {
            Effort::Quick if crowd > CROWDS[0] => None,
            Effort::Quick => Some(idle(&scene, &SHORT)?),
            Effort::Full => Some(idle(&scene, &WHOLE)?),
        };
        let told = |value: fn(&Idle) -> f64, digits: usize| {
            watch.as_ref().map_or_else(|| "-".into(), |idle| format!("{:.digits$}", value(idle)))
        };
        report.row([
            crowd.to_string(),
            format!("{:.1}", rounds.median(0)),
            format!("{:.1}", rounds.ratio(0, 2)),
            format!("{:.1}", rounds.max(0)),
            format!("{:.1}", rounds.median(1)),
            instructions(&scene).map_or_else(|why| format!("not measured: {why}"), |count| count.to_string()),
            told(|idle| idle.pss, 0),
            told(|idle| idle.look_ms, 1),
            told(Idle::hourly, 2),
        ]);
        times.bar(format!("{crowd} processes, /proc/PID/stat alone"), Tone::Floor, rounds.median(2));
        times.bar(format!("{crowd} processes, leash reap"), Tone::Leash, rounds.median(0));
        report.keep(&crowd.to_string(), "ms", &rounds, 0);
        report.keep(&crowd.to_string(), "CPU ms", &rounds, 1);
        report.keep(&format!("{crowd}, floor"), "ms", &rounds, 2);
        if let (Some(idle), true) = (&watch, crowd == CROWDS[2]) {
            claim(&mut report, rounds.median(0), idle);
        }
        drop(host);
    }
    report.panel(times);
    Ok(report)
}

fn claim(report: &mut Report, look: Estimate, idle: &Idle) {
    let claims = [
        ("one look at 5,000 processes", "ms", look, LOOK_MS),
        ("memory of `leash watch` at rest (PSS)", "kB", Estimate::single(idle.pss), WATCH_KB),
        ("processor time of `leash watch` an hour", "s", Estimate::single(idle.hourly()), WATCH_SECONDS),
    ];
    for (what, unit, found, goal) in claims {
        report.claim(Claim { what: what.into(), unit, found, goal });
    }
}

/// Alternates scans and the floor. Returns the milliseconds and processor milliseconds of a scan, and the milliseconds
/// of the floor.
fn looks(scene: &Scene, count: usize) -> Outcome<Rounds> {
    let mut arms = vec![Vec::new(); 3];
    for _ in 0..count {
        let (took, spent) = look(scene)?;
        for (arm, value) in arms.iter_mut().zip([took, spent, floor()]) {
            arm.push(value);
        }
    }
    Ok(Rounds::of(arms))
}

/// The milliseconds of the least work that any scan of all processes has to do.
fn floor() -> f64 {
    let start = now();
    let read = |pid: Pid| fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).map_or(0, |stat| stat.len());
    std::hint::black_box(testkit::process::all().into_iter().map(read).sum::<usize>());
    millis(now() - start)
}

/// One scan, from the start of leash to its exit: its duration, and its processor time.
fn look(scene: &Scene) -> Outcome<(f64, f64)> {
    let mut command = scene.leash(["reap"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = now();
    let mut leash = start_of(command.spawn())?;
    let pid = Pid::from_child(&leash);
    // The times are read before the process is reaped; after that they are gone.
    let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let took = millis(now() - start);
    let spent = processor_time(pid);
    let status = leash.wait().map_err(|error| Failure::new(format!("leash can't be waited for: {error}")))?;
    ended.map_err(|error| Failure::new(format!("leash can't be waited for: {error}")))?;
    match status.success() {
        true => Ok((took, millis(spent?))),
        false => Err(Failure::new(format!("leash ended with {status}"))),
    }
}

fn start_of(child: std::io::Result<Child>) -> Outcome<Child> {
    child.map_err(|error| Failure::new(format!("leash does not start: {error}")))
}

/// Instructions of one look, counted by callgrind.
fn instructions(scene: &Scene) -> Result<u64, String> {
    let mut command = scene.command("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(scene.leash_path()).arg("reap");
    let output = command.output().map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        return Err(format!("under valgrind leash ended with {}", output.status));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find_map(|line| line.split_once("Collected : ")).ok_or("valgrind counts nothing here")?;
    line.1.trim().parse().map_err(|_| format!("`{}` is no number", line.1))
}

/// The cost of a watch.
struct Idle {
    /// The memory between two scans, in kB.
    pss: f64,
    /// The average CPU time of a scan.
    look_ms: f64,
}

impl Idle {
    /// Seconds of processor time in an hour with a scan per minute.
    fn hourly(&self) -> f64 {
        self.look_ms * HOURLY / 1e3
    }
}

/// Measures an idle watch: it knows every process, and nothing happens.
fn idle(scene: &Scene, times: &Times) -> Outcome<Idle> {
    let mut command = scene.leash(["watch", "--interval"]);
    command.arg(format!("{}s", INTERVAL.as_secs())).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watch = start_of(command.spawn())?;
    let measured = rest(Pid::from_child(&watch), times);
    let _ = watch.kill();
    let _ = watch.wait();
    measured
}

fn rest(pid: Pid, times: &Times) -> Outcome<Idle> {
    pass(times.warm_up);
    let (spent_before, start) = (processor_time(pid)?, now());
    pass(times.measured);
    let (spent, took) = (processor_time(pid)? - spent_before, now() - start);
    // It waits for the interval after each scan.
    let looks = (took - spent).as_secs_f64() / INTERVAL.as_secs_f64();
    // During a scan it uses more memory, so the smallest of some readings is the one between two scans.
    let samples = (0..10).map(|_| {
        pass(INTERVAL / 10);
        kilobytes(pid, "Pss:")
    });
    let pss = samples.collect::<Outcome<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Idle { pss, look_ms: millis(spent) / looks })
}

/// Waits: the measurement needs this time to pass.
fn pass(time: Duration) {
    let _ = wait::within(time, || None::<()>);
}
