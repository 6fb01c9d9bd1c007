//! What a look at all processes costs (`leash reap` without `--yes`), and what `leash watch` costs while nothing happens.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use super::super::proc::{kilobytes, processor_time};
use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use crate::step::{Failure, Outcome};

/// How many processes there are besides those of the machine.
const CROWDS: [usize; 3] = [100, 1_000, 5_000];

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut report = Report::new(
        "A look at all processes (target: under 150 ms for 5,000 on one processor)",
        ["processes", "median ms [95 %]", "max ms", "instructions", "watch: PSS kB", "watch: CPU s an hour"],
    );
    for crowd in CROWDS.into_iter().take(effort.pick(1, CROWDS.len())) {
        let mut scene = super::scene()?;
        let words = scene.tree("setsid", ["--size", &crowd.to_string()]);
        let host = scene.host(&Default::default(), None, &words);
        scene.census().wait_ready(LIMIT).map_err(|heard| Failure::new(format!("no crowd of {crowd}: {heard}")))?;
        let rounds = Rounds::take(effort.pick(3, 30), 1, |_| look(&scene))?;
        let (pss, cpu) = idle(&scene, rounds.median(0).value)?;
        report.row([
            crowd.to_string(),
            format!("{:.1}", rounds.median(0)),
            format!("{:.1}", rounds.max(0)),
            instructions(&scene).map_or_else(|why| format!("not measured: {why}"), |count| count.to_string()),
            format!("{pss:.0}"),
            format!("{cpu:.1}"),
        ]);
        report.keep(&crowd.to_string(), "ms", &rounds, 0);
        drop(host);
    }
    Ok(report)
}

/// One look, from the start of leash to its end.
fn look(scene: &Scene) -> Outcome<f64> {
    let mut command = scene.leash(["reap"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = now();
    let status = command.status().map_err(|error| Failure::new(format!("leash does not start: {error}")))?;
    match status.success() {
        true => Ok(millis(now() - start)),
        false => Err(Failure::new(format!("leash ended with {status}"))),
    }
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

/// Memory of a watch that has looked once, and the CPU time of an hour with a look each minute.
fn idle(scene: &Scene, look_ms: f64) -> Outcome<(f64, f64)> {
    let mut command = scene.leash(["watch"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut watch = command.spawn().map_err(|error| Failure::new(format!("leash does not start: {error}")))?;
    let pid = Pid::from_child(&watch);
    // It rests when its processor time has stood still for as long as several looks take.
    let still = Duration::from_secs_f64(look_ms * 5.0 / 1e3);
    let mut last = (processor_time(pid)?, now());
    let rested = wait::within(LIMIT, || {
        let spent = processor_time(pid).ok()?;
        if spent != last.0 {
            last = (spent, now());
        }
        (spent > Duration::ZERO && now() - last.1 > still).then_some(spent)
    });
    let pss = kilobytes(pid, "Pss:");
    let _ = watch.kill();
    let _ = watch.wait();
    let spent = rested.ok_or_else(|| Failure::new("watch does not come to rest"))?;
    // What it has spent is its start and one look.
    Ok((pss?, spent.as_secs_f64() * 60.0))
}
