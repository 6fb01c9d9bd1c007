//! The memory of leash itself while a server runs: supervisor and keeper, with many of them alive, as on a real
//! desktop.

use std::path::Path;

use rustix::process::Pid;
use testkit::host::{Host, Manner};
use testkit::scene::Scene;

use super::super::Effort;
use super::super::plot::{Goal, Panel, Tone};
use super::super::proc::kilobytes;
use super::super::report::{Claim, Report};
use super::super::stats::Rounds;
use crate::step::{Failure, Outcome};

/// Pages that differ from every file. One that supervisor and keeper share counts half for each.
const CHANGED: &str = "Pss_Dirty:";

/// For both together, in kB.
const GOAL: Goal = Goal::AtMost(160.0);

/// The measured fields of `smaps_rollup`, and the processes.
const ARMS: [(&str, Who, &str); 6] = [
    ("supervisor", Who::Supervisor, CHANGED),
    ("supervisor", Who::Supervisor, "Pss:"),
    ("keeper", Who::Keeper, CHANGED),
    ("keeper", Who::Keeper, "Pss:"),
    ("both", Who::Both, CHANGED),
    ("both", Who::Both, "Pss:"),
];

#[derive(Clone, Copy)]
pub(in crate::bench) enum Who {
    Supervisor,
    Keeper,
    Both,
}

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let count = effort.pick(3, 20);
    let mut all = (0..count).map(|_| Leash::start()).collect::<Outcome<Vec<_>>>()?;
    let mut turn = vec![0; ARMS.len()];
    let rounds = Rounds::take(count, ARMS.len(), |arm| {
        let (_, who, field) = ARMS[arm];
        turn[arm] += 1;
        all[turn[arm] - 1].read(who, field)
    })?;
    all.clear();

    let mut report = Report::new(
        format!("Memory of `leash run`, {count} of them at once"),
        "supervisor and keeper while the server waits, by `smaps_rollup`.",
        ["process", "field", "median kB [95 %]", "max kB"],
    );
    let mut panel = Panel::new("kB of changed pages").goal(GOAL);
    for (arm, (name, who, field)) in ARMS.iter().enumerate() {
        let (median, is_changed) = (rounds.median(arm), *field == CHANGED);
        let field = field.trim_end_matches(':');
        report.row([(*name).into(), field.into(), format!("{median:.0}"), format!("{:.0}", rounds.max(arm))]);
        report.keep(&format!("{name} {field}"), "kB", &rounds, arm);
        if is_changed {
            panel.bar(*name, Tone::Leash, median);
        }
        if let (Who::Both, true) = (who, is_changed) {
            let what = "changed pages of supervisor and keeper together";
            report.claim(Claim { what: what.into(), unit: "kB", found: median, goal: GOAL });
        }
    }
    report.panel(panel);
    Ok(report)
}

/// One `leash run` whose server answers.
pub(in crate::bench) struct Leash {
    supervisor: Pid,
    keeper: Pid,
    // The host is killed first, then the rest of the scene.
    _host: Host,
    _scene: Scene,
}

impl Leash {
    fn start() -> Outcome<Self> {
        Self::start_in(super::scene()?)
    }

    /// The same with another `leash`.
    pub(in crate::bench) fn start_build(leash: &Path) -> Outcome<Self> {
        let mut scene = super::scene()?;
        scene.set_leash(leash);
        Self::start_in(scene)
    }

    fn start_in(scene: Scene) -> Outcome<Self> {
        let words = super::words(&scene, Some(&[]), &["echo"]);
        let mut host = scene.host(&Manner::default(), None, &words);
        // When the server answers, leash has finished its start.
        host.send("hello");
        if !host.wait_answer("hello") {
            return Err(Failure::new(format!("the server does not answer: {}", scene.stderr())));
        }
        let supervisor = host.server().pid();
        let keeper = testkit::leash::keeper(supervisor).pid();
        Ok(Self { supervisor, keeper, _host: host, _scene: scene })
    }

    pub(in crate::bench) fn read(&self, who: Who, field: &str) -> Outcome<f64> {
        match who {
            Who::Supervisor => kilobytes(self.supervisor, field),
            Who::Keeper => kilobytes(self.keeper, field),
            Who::Both => Ok(kilobytes(self.supervisor, field)? + kilobytes(self.keeper, field)?),
        }
    }
}
