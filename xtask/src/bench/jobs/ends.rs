//! The time from DELETE to its answer, which is the proof, for trees of several sizes; compared with the time that the
//! kernel needs to kill such a tree.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::path;
use testkit::wait;

use super::super::plot::{Panel, Tone};
use super::super::report::Report;
use super::super::run::kernel_alone;
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use super::{Stage, all_gone};
use crate::step::{Failure, Outcome};

/// The behaviour of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// A deaf tree without leash, ended by one write to `cgroup.kill`.
    Alone,
    /// It ignores all signals but SIGKILL, and the grace is zero.
    Deaf,
    /// The server exits at the end of its input, and its children at SIGTERM.
    Obedient,
}

/// The others are compared with the first.
const MANNERS: [Manner; 3] = [Manner::Alone, Manner::Deaf, Manner::Obedient];

const SIZES: [usize; 3] = [1, 5, 50];

/// Far beyond the time that a tree of 50 needs to start.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut stage = Stage::set()?;
    let mut report = Report::new(
        "From DELETE of a session to its receipt: every process is gone",
        "the answer to `DELETE` is the proof. The floor is one write to `cgroup.kill` without leash, until the last process is dead.",
        ["tree", "processes", "median ms [95 %]", "to the floor [95 %]", "max ms"],
    );
    let mut panel = Panel::ratios("time from DELETE to the proof, as a multiple of cgroup.kill alone");
    for size in SIZES {
        let rounds = Rounds::take(effort.pick(5, 50), MANNERS.len(), |arm| sample(&mut stage, MANNERS[arm], size))?;
        for (arm, manner) in MANNERS.into_iter().enumerate() {
            let ratio = rounds.ratio(arm, 0);
            report.row([
                manner.name().into(),
                size.to_string(),
                format!("{:.2}", rounds.median(arm)),
                format!("{ratio:.1}"),
                format!("{:.2}", rounds.max(arm)),
            ]);
            report.keep(&format!("{} / {size}", manner.name()), "ms", &rounds, arm);
            if manner != Manner::Alone {
                panel.bar(format!("{size} processes, {}", manner.short()), Tone::Leash, ratio);
            }
        }
    }
    report.panel(panel);
    stage.gateway.stop();
    Ok(report)
}

impl Manner {
    fn name(self) -> &'static str {
        match self {
            Self::Alone => "floor, `cgroup.kill` alone",
            Self::Deaf => "deaf to all but SIGKILL, grace 0",
            Self::Obedient => "leaves at the end of its input, its children by SIGTERM",
        }
    }

    fn short(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Deaf => "deaf",
            Self::Obedient => "obedient",
        }
    }

    /// A tree of this many processes as an entry of `mcpServers`.
    fn tree(self, stage: &Stage, size: usize) -> Value {
        match self {
            Self::Alone | Self::Deaf => stage.tree("mixed", size, "0s"),
            Self::Obedient => {
                let script = format!("for i in $(seq {}); do sleep 1000 & done; exec cat", size - 1);
                json!({"command": "sh", "args": ["-c", script]})
            }
        }
    }
}

/// Milliseconds. A survivor is a failure, not a slow sample.
fn sample(stage: &mut Stage, manner: Manner, size: usize) -> Outcome<f64> {
    if manner == Manner::Alone {
        return kernel_alone(size);
    }
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
