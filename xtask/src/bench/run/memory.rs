//! What leash itself takes while a server runs: supervisor and keeper, with many of them alive, as on a real desk.

use rustix::process::Pid;
use testkit::host::{Host, Manner};
use testkit::scene::Scene;

use super::super::Effort;
use super::super::proc::kilobytes;
use super::super::report::Report;
use super::super::stats::Rounds;
use crate::step::{Failure, Outcome};

/// What is read of `smaps_rollup`, and whose.
const ARMS: [(&str, Who, &str); 6] = [
    ("supervisor", Who::Supervisor, "Private_Dirty:"),
    ("supervisor", Who::Supervisor, "Pss:"),
    ("keeper", Who::Keeper, "Private_Dirty:"),
    ("keeper", Who::Keeper, "Pss:"),
    ("both", Who::Both, "Private_Dirty:"),
    ("both", Who::Both, "Pss:"),
];

#[derive(Clone, Copy)]
enum Who {
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

    let title = format!("Memory of leash, {count} of them at once (target: both under 600 kB private dirty)");
    let mut report = Report::new(title, ["process", "field", "median kB [95 %]", "max kB"]);
    for (arm, (name, _, field)) in ARMS.iter().enumerate() {
        let field = field.trim_end_matches(':');
        report.row([
            (*name).into(),
            field.into(),
            format!("{:.0}", rounds.median(arm)),
            format!("{:.0}", rounds.max(arm)),
        ]);
        report.keep(&format!("{name} {field}"), "kB", &rounds, arm);
    }
    Ok(report)
}

/// One `leash run` whose server answers.
struct Leash {
    supervisor: Pid,
    keeper: Pid,
    // The host is killed first, then what is left on the stage.
    _host: Host,
    _scene: Scene,
}

impl Leash {
    fn start() -> Outcome<Self> {
        let scene = super::scene()?;
        let words = super::words(&scene, Some(&[]), &["echo"]);
        let mut host = scene.host(&Manner::default(), None, &words);
        // When the server answers, leash has done all that it does at a start.
        host.send("hello");
        if !host.wait_answer("hello") {
            return Err(Failure::new(format!("the server does not answer: {}", scene.stderr())));
        }
        let supervisor = host.server().pid();
        let keeper = testkit::leash::keeper(supervisor).pid();
        Ok(Self { supervisor, keeper, _host: host, _scene: scene })
    }

    fn read(&self, who: Who, field: &str) -> Outcome<f64> {
        match who {
            Who::Supervisor => kilobytes(self.supervisor, field),
            Who::Keeper => kilobytes(self.keeper, field),
            Who::Both => Ok(kilobytes(self.supervisor, field)? + kilobytes(self.keeper, field)?),
        }
    }
}
