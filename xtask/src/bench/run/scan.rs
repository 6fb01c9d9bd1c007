//! What a look at all processes costs (`leash reap` without `--yes`), and what `leash watch` costs while nothing happens.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use super::super::proc::{kilobytes, processor_time};
use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use crate::step::{Failure, Outcome};

/// How many processes there are besides those of the machine.
const CROWDS: [usize; 3] = [100, 1_000, 5_000];

/// How often the watch looks here. It looks each minute by itself, which would take long to measure.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long it takes until nobody is new any more.
const WARM_UP: Duration = Duration::from_secs(13);

/// Some looks read everybody: every tenth. This is twice all of them.
const MEASURED: Duration = Duration::from_secs(20);

/// Looks in an hour.
const HOURLY: f64 = 60.0;

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut report = Report::new(
        "A look at all processes (targets for 5,000: under 150 ms on one processor; `watch`: under 5,000 kB and 3.6 s an hour)",
        [
            "processes",
            "median ms [95 %]",
            "max ms",
            "CPU ms [95 %]",
            "instructions",
            "watch: PSS kB",
            "watch: CPU ms a look",
            "watch: CPU s an hour",
        ],
    );
    for crowd in CROWDS.into_iter().take(effort.pick(1, CROWDS.len())) {
        let mut scene = super::scene()?;
        let words = scene.tree("setsid", ["--size", &crowd.to_string()]);
        let host = scene.host(&Default::default(), None, &words);
        scene.census().wait_ready(LIMIT).map_err(|heard| Failure::new(format!("no crowd of {crowd}: {heard}")))?;
        let looks: Vec<(f64, f64)> = (0..effort.pick(3, 30)).map(|_| look(&scene)).collect::<Outcome<_>>()?;
        let (wall, spent) = looks.into_iter().unzip();
        let rounds = Rounds::of(vec![wall, spent]);
        let idle = idle(&scene)?;
        report.row([
            crowd.to_string(),
            format!("{:.1}", rounds.median(0)),
            format!("{:.1}", rounds.max(0)),
            format!("{:.1}", rounds.median(1)),
            instructions(&scene).map_or_else(|why| format!("not measured: {why}"), |count| count.to_string()),
            format!("{:.0}", idle.pss),
            format!("{:.1}", idle.look_ms),
            format!("{:.2}", idle.look_ms * HOURLY / 1e3),
        ]);
        report.keep(&crowd.to_string(), "ms", &rounds, 0);
        report.keep(&crowd.to_string(), "CPU ms", &rounds, 1);
        drop(host);
    }
    Ok(report)
}

/// One look, from the start of leash to its end: how long it takes, and how long it was on a processor.
fn look(scene: &Scene) -> Outcome<(f64, f64)> {
    let mut command = scene.leash(["reap"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = now();
    let mut leash = start_of(command.spawn())?;
    let pid = Pid::from_child(&leash);
    // It is asked before it is collected; then nobody knows any more.
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

/// What a watch costs.
struct Idle {
    /// Memory between two looks, in kB.
    pss: f64,
    /// CPU time of a look, on the average.
    look_ms: f64,
}

/// A watch that has come to rest: it knows everybody, and nothing happens.
fn idle(scene: &Scene) -> Outcome<Idle> {
    let mut command = scene.leash(["watch", "--interval"]);
    command.arg(format!("{}s", INTERVAL.as_secs())).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watch = start_of(command.spawn())?;
    let measured = rest(Pid::from_child(&watch));
    let _ = watch.kill();
    let _ = watch.wait();
    measured
}

fn rest(pid: Pid) -> Outcome<Idle> {
    pass(WARM_UP);
    let (spent_before, start) = (processor_time(pid)?, now());
    pass(MEASURED);
    let (spent, took) = (processor_time(pid)? - spent_before, now() - start);
    // It waits for the interval after each look.
    let looks = (took - spent).as_secs_f64() / INTERVAL.as_secs_f64();
    // In the middle of a look it has more, so the least of some is what it has between two.
    let samples = (0..10).map(|_| {
        pass(INTERVAL / 10);
        kilobytes(pid, "Pss:")
    });
    let pss = samples.collect::<Outcome<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Idle { pss, look_ms: millis(spent) / looks })
}

/// Lets time pass: it is what is measured.
fn pass(time: Duration) {
    let _ = wait::within(time, || None::<()>);
}
