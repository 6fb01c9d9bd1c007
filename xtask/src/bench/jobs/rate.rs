//! Sessions created and ended per second, one after another and many at once.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::Control;

use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, now};
use super::{Stage, all_gone};
use crate::step::{Failure, Outcome};

/// How many callers there are.
const AT_ONCE: [usize; 2] = [1, 8];

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let stage = Stage::set()?;
    let stdio = stage.tree("polite", 1, "2s");
    let kinds: [(&str, Value); 2] = [
        ("one stdio server", json!({"mcpServers": {"a": stdio}})),
        ("two stdio servers", json!({"mcpServers": {"a": stdio, "b": stdio}})),
    ];
    let time = effort.pick(Duration::from_millis(500), Duration::from_secs(2));
    let mut report = Report::new(
        "Sessions created and ended, each with its proof",
        ["session", "at once", "sessions/s [95 %]", "median ms for both"],
    );
    let arms: Vec<(&str, &Value, usize)> =
        kinds.iter().flat_map(|(name, request)| AT_ONCE.map(|at_once| (*name, request, at_once))).collect();
    let rounds = Rounds::take(effort.pick(3, 10), arms.len(), |arm| {
        let (_, request, at_once) = arms[arm];
        rate(&stage.control, request, at_once, time)
    })?;
    for (arm, (name, _, at_once)) in arms.iter().enumerate() {
        let rate = rounds.median(arm);
        let each = *at_once as f64 * 1e3 / rate.value;
        report.row([(*name).into(), at_once.to_string(), format!("{rate:.0}"), format!("{each:.1}")]);
        report.keep(&format!("{name} / {at_once}"), "sessions/s", &rounds, arm);
    }
    stage.gateway.stop();
    Ok(report)
}

/// Sessions per second.
fn rate(control: &Control, request: &Value, at_once: usize, time: Duration) -> Outcome<f64> {
    let start = now();
    let work = || {
        let mut sessions = 0;
        while now() - start < time {
            let session = control.create(request);
            all_gone(&control.end(&session))?;
            sessions += 1;
        }
        Ok::<u32, Failure>(sessions)
    };
    let counted: Outcome<Vec<u32>> = thread::scope(|scope| {
        let callers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = |caller: thread::ScopedJoinHandle<'_, Outcome<u32>>| {
            caller.join().unwrap_or_else(|_| Err(Failure::new("a caller panicked")))
        };
        callers.into_iter().map(joined).collect()
    });
    let sessions: u32 = counted?.into_iter().sum();
    Ok(f64::from(sessions) / (now() - start).as_secs_f64())
}
