//! The time from the SIGKILL of the owner, or of leash itself, to the death of the last process of the tree: a quarter
//! each of plain children, `setsid` helpers, daemons and a deep chain, all ignoring SIGTERM. The census FIFO shows when
//! all are dead.

use std::fs;
use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use testkit::ground::{Containment, Ground};
use testkit::host::{Host, Manner};
use testkit::process::Handle;
use testkit::scene::Scene;

use super::super::plot::{Goal, Panel, Tone};
use super::super::report::{Claim, Report};
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use crate::step::{Failure, Outcome};

/// The process that is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Owner,
    Supervisor,
    /// The whole tree by one write to `cgroup.kill`, without leash: the time that the kernel needs in any case.
    Everything,
}

struct Case {
    containment: &'static str,
    victim: Victim,
    /// Medians of the prototype in ms for 5, 50 and 500 processes (containment.md 1.2), measured on an idle machine
    /// with two processors. The target is at most twice of it there.
    prototype: [f64; 3],
}

const SIZES: [usize; 3] = [5, 50, 500];

/// The others are compared with the first, in the same run.
const CASES: [Case; 9] = [
    Case { containment: "no leash", victim: Victim::Everything, prototype: [f64::NAN; 3] },
    Case { containment: "sealed", victim: Victim::Owner, prototype: [0.61, 2.0, 20.0] },
    Case { containment: "sealed", victim: Victim::Supervisor, prototype: [0.61, 2.0, 20.0] },
    Case { containment: "leaf", victim: Victim::Owner, prototype: [0.54, 2.0, 19.0] },
    Case { containment: "leaf", victim: Victim::Supervisor, prototype: [0.54, 2.0, 19.0] },
    Case { containment: "reaper", victim: Victim::Owner, prototype: [0.58, 2.5, 28.0] },
    Case { containment: "reaper", victim: Victim::Supervisor, prototype: [0.66, 2.7, 28.0] },
    Case { containment: UNIT, victim: Victim::Owner, prototype: [15.0, 23.0, 64.0] },
    Case { containment: UNIT, victim: Victim::Supervisor, prototype: [15.0, 23.0, 64.0] },
];

/// It needs a user manager, which not every machine has.
const UNIT: &str = "unit";

const GOAL: Goal = Goal::AtMost(2.0);

/// For the largest tree, to `cgroup.kill` alone.
const TO_KERNEL: Goal = Goal::AtMost(1.2);

const ABOUT: &str = "with `--grace 0`, trees of plain children, `setsid` helpers, daemons and a deep chain, a quarter \
each, all of which ignore SIGTERM. A pipe that all processes hold shows when the last one is dead. The first row of \
each size is one write to `cgroup.kill` without leash: the time that the kernel needs in any case. The prototype's \
milliseconds are those of an idle machine with two processors.";

/// Far beyond the time that a tree of 500 needs to start or to die.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let mut report = Report::new(
        "From SIGKILL to the last process dead",
        ABOUT,
        [
            "containment",
            "killed",
            "processes",
            "median ms [95 %]",
            "max ms",
            "to cgroup.kill alone [95 %]",
            "to the prototype",
        ],
    );
    let unit = Ground::prepare(Containment::Unit, super::who());
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.containment != UNIT || unit.is_ok()).collect();
    for (index, size) in SIZES.into_iter().enumerate() {
        // A tree of 500 takes a second to start.
        let rounds = effort.pick(if size > 100 { 2 } else { 3 }, 25);
        let rounds = Rounds::take(rounds, cases.len(), |arm| cases[arm].sample(size, unit.as_ref().ok()))?;
        add(&mut report, &cases, &rounds, index);
    }
    if let Err(why) = unit {
        report.missing(UNIT, &why);
    }
    Ok(report)
}

/// The time in milliseconds that the kernel needs to kill a tree of this many processes, without leash.
pub(in crate::bench) fn kernel_alone(size: usize) -> Outcome<f64> {
    CASES[0].sample(size, None)
}

/// Adds the results for one size.
fn add(report: &mut Report, cases: &[&Case], rounds: &Rounds, index: usize) {
    let size = SIZES[index];
    let mut panel = Panel::ratios(format!("{size} processes: time, as a multiple of cgroup.kill alone"));
    for (arm, case) in cases.iter().enumerate() {
        let (median, victim) = (rounds.median(arm), case.victim.name());
        let to_kernel = rounds.ratio(arm, 0);
        let to_prototype = median.times(1.0 / case.prototype[index]);
        report.row([
            case.containment.into(),
            victim.into(),
            size.to_string(),
            format!("{median:.2}"),
            format!("{:.2}", rounds.max(arm)),
            format!("{to_kernel:.2}"),
            if to_prototype.value.is_nan() { "-".into() } else { format!("{:.2}x", to_prototype.value) },
        ]);
        report.keep(&format!("{} / {victim} / {size}", case.containment), "ms", rounds, arm);
        let tone = if case.victim == Victim::Everything { Tone::Floor } else { Tone::Leash };
        panel.bar(format!("{}, {victim}", case.containment), tone, to_kernel);
        if case.victim == Victim::Owner {
            let what = format!("owner killed, {size} processes in `{}`: time to the prototype", case.containment);
            report.claim(Claim { what, unit: "", found: to_prototype, goal: GOAL });
            if Some(&size) == SIZES.last() {
                let what =
                    format!("owner killed, {size} processes in `{}`: time to cgroup.kill alone", case.containment);
                report.claim(Claim { what, unit: "", found: to_kernel, goal: TO_KERNEL });
            }
        }
    }
    report.panel(panel);
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Supervisor => "supervisor",
            Self::Everything => "everything",
        }
    }
}

impl Case {
    /// Milliseconds. A survivor is a failure, not a slow sample.
    fn sample(&self, size: usize, unit: Option<&Ground>) -> Outcome<f64> {
        let mut scene = match unit {
            Some(ground) if self.containment == UNIT => ground.scene().map_err(Failure::new)?,
            _ => super::scene()?,
        };
        let tree = scene.tree("mixed", ["--size", &size.to_string()]);
        let words = match self.victim {
            Victim::Everything => tree,
            _ => scene.run_words(["--contain", self.containment, "--grace", "0"], &tree),
        };
        let mut host = scene.host(&Manner::default(), None, &words);
        if let Err(heard) = scene.census().wait_ready(LIMIT) {
            let said = scene.stderr();
            return Err(Failure::new(format!("no tree under `{}`: {heard}{said}", self.containment)));
        }
        let harm = Harm::prepare(self.victim, &mut host, &scene)?;

        let start = now();
        harm.strike(&host)?;
        let gone = scene.census().wait_gone(LIMIT);
        let took = now() - start;
        let (containment, victim) = (self.containment, self.victim.name());
        match gone {
            Ok(()) => Ok(millis(took)),
            Err(survivors) => Err(Failure::new(format!("{victim} of `{containment}` killed: {survivors}"))),
        }
    }
}

/// The kill that is about to happen. Everything that can be looked up before was looked up.
enum Harm {
    Owner,
    Supervisor(Handle),
    Everything(fs::File),
}

impl Harm {
    fn prepare(victim: Victim, host: &mut Host, scene: &Scene) -> Outcome<Self> {
        match victim {
            Victim::Owner => Ok(Self::Owner),
            Victim::Supervisor => Ok(Self::Supervisor(host.server())),
            Victim::Everything => {
                let outer = scene.outer().ok_or_else(|| Failure::new("this bench needs a cgroup2 to write to"))?;
                let kill = outer.dir().join("cgroup.kill");
                fs::File::options().write(true).open(&kill).map(Self::Everything).map_err(Failure::at(&kill))
            }
        }
    }

    fn strike(self, host: &Host) -> Outcome {
        let done = match self {
            Self::Owner => {
                host.signal(Signal::KILL);
                Ok(())
            }
            Self::Supervisor(supervisor) => supervisor.signal(Signal::KILL),
            Self::Everything(mut kill) => kill.write_all(b"1"),
        };
        done.map_err(|error| Failure::new(format!("cannot kill: {error}")))
    }
}
