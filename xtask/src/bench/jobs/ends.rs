//! From DELETE to its answer, which is the proof, for trees of several sizes. What the kernel needs for such a tree in any case is
//! in the bench `death`.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::path;
use testkit::wait;

use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use super::{Stage, all_gone};
use crate::step::{Failure, Outcome};

/// How a tree answers.
#[derive(Clone, Copy)]
enum Manner {
    /// It is deaf to all but SIGKILL, and there is no grace.
    Deaf,
    /// The server leaves at the end of its input, and what it started by SIGTERM.
    Obedient,
}

const MANNERS: [Manner; 2] = [Manner::Deaf, Manner::Obedient];

const SIZES: [usize; 3] = [1, 5, 50];

/// Far beyond what a tree of 50 needs to grow.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut stage = Stage::set()?;
    let mut report = Report::new(
        "From DELETE of a session to its receipt: every process is gone",
        ["server", "processes", "median ms [95 %]", "max ms"],
    );
    for manner in MANNERS {
        let rounds = Rounds::take(effort.pick(5, 50), SIZES.len(), |arm| sample(&mut stage, manner, SIZES[arm]))?;
        for (arm, size) in SIZES.iter().enumerate() {
            let (median, max) = (format!("{:.2}", rounds.median(arm)), format!("{:.2}", rounds.max(arm)));
            report.row([manner.name().into(), size.to_string(), median, max]);
            report.keep(&format!("{} / {size}", manner.name()), "ms", &rounds, arm);
        }
    }
    stage.gateway.stop();
    Ok(report)
}

impl Manner {
    fn name(self) -> &'static str {
        match self {
            Self::Deaf => "deaf to all but SIGKILL, grace 0",
            Self::Obedient => "leaves at the end of its input, its children by SIGTERM",
        }
    }

    /// A tree of so many processes, as `mcpServers` has it.
    fn tree(self, stage: &Stage, size: usize) -> Value {
        match self {
            Self::Deaf => stage.tree("mixed", size, "0s"),
            Self::Obedient => {
                let script = format!("for i in $(seq {}); do sleep 1000 & done; exec cat", size - 1);
                json!({"command": "sh", "args": ["-c", script]})
            }
        }
    }
}

/// Milliseconds. A survivor is not slow but a failure.
fn sample(stage: &mut Stage, manner: Manner, size: usize) -> Outcome<f64> {
    let session = stage.control.create(&json!({"mcpServers": {"tree": manner.tree(stage, size)}}));
    let grown = || {
        let processes = &stage.control.show(&session)["servers"][0]["holdings"][0]["processes"];
        (*processes == size).then_some(())
    };
    if wait::within(LIMIT, grown).is_none() {
        return Err(Failure::new(format!("no tree of {size}: {}", stage.gateway.said())));
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
