//! From DELETE to its answer, which is the proof, for trees of several sizes. What the kernel needs for such a tree in any case is
//! in the bench `death`.

use std::time::Duration;

use serde_json::json;
use testkit::control::path;

use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use super::{Stage, all_gone};
use crate::step::{Failure, Outcome};

/// How a tree answers, and how it is asked.
struct Manner {
    name: &'static str,
    /// Of the zoo.
    kind: &'static str,
    grace: &'static str,
}

const MANNERS: [Manner; 2] = [
    Manner { name: "deaf to all but SIGKILL, grace 0", kind: "mixed", grace: "0s" },
    Manner { name: "obeys the end of its input, helpers killed by SIGTERM", kind: "setsid", grace: "2s" },
];

const SIZES: [usize; 3] = [1, 5, 50];

/// Far beyond what a tree of 50 needs to grow.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut stage = Stage::set()?;
    let mut report = Report::new(
        "From DELETE of a session to its receipt: every process is gone",
        ["server", "processes", "median ms [95 %]", "max ms"],
    );
    for manner in &MANNERS {
        let rounds = Rounds::take(effort.pick(5, 50), SIZES.len(), |arm| sample(&mut stage, manner, SIZES[arm]))?;
        for (arm, size) in SIZES.iter().enumerate() {
            let (median, max) = (format!("{:.2}", rounds.median(arm)), format!("{:.2}", rounds.max(arm)));
            report.row([manner.name.into(), size.to_string(), median, max]);
            report.keep(&format!("{} / {size}", manner.name), "ms", &rounds, arm);
        }
    }
    stage.gateway.stop();
    Ok(report)
}

/// Milliseconds. A survivor is not slow but a failure.
fn sample(stage: &mut Stage, manner: &Manner, size: usize) -> Outcome<f64> {
    let tree = stage.tree(manner.kind, size, manner.grace);
    let session = stage.control.create(&json!({"mcpServers": {"tree": tree}}));
    if let Err(heard) = stage.scene.census().wait_ready(LIMIT) {
        return Err(Failure::new(format!("no tree: {heard}{}", stage.gateway.said())));
    }
    let start = now();
    let reply = stage.control.ask("DELETE", &path(&session, ""), "");
    let took = now() - start;
    if stage.scene.census().is_populated() {
        return Err(Failure::new("the receipt came before the end"));
    }
    all_gone(&reply.json())?;
    Ok(millis(took))
}
