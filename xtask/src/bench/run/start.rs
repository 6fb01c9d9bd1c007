//! The time that leash adds to the start of a server: from the spawn to the first byte that comes back.

use std::io::{Read, Write};
use std::process::Stdio;

use super::super::plot::{Goal, Panel, Tone};
use super::super::report::{Claim, Report};
use super::super::stats::Rounds;
use super::super::{Effort, millis, now};
use crate::step::{Failure, Outcome};

type Arm = (&'static str, Option<&'static [&'static str]>);

const ARMS: [Arm; 5] = [
    ("bare", None),
    ("leash run", Some(&[])),
    ("leash run --contain reaper", Some(&["--contain", "reaper"])),
    ("leash run --contain leaf", Some(&["--contain", "leaf"])),
    ("leash run --contain sealed", Some(&["--contain", "sealed"])),
];

/// Milliseconds; too few to notice.
const GOAL: Goal = Goal::AtMost(1.5);

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let rounds = Rounds::take(effort.pick(5, 100), ARMS.len(), |arm| first_byte(ARMS[arm].1))?;
    let mut report = Report::new(
        "Start of a server behind `leash run`",
        "from the spawn to the first echoed byte.",
        ["start", "median ms [95 %]", "added ms [95 %]", "ratio to bare [95 %]", "max ms"],
    );
    let mut panel = Panel::new("ms added to the start").goal(GOAL);
    for (arm, (name, leash)) in ARMS.iter().enumerate() {
        let added = rounds.difference(arm, 0);
        report.row([
            (*name).into(),
            format!("{:.2}", rounds.median(arm)),
            format!("{added:.2}"),
            format!("{:.2}", rounds.ratio(arm, 0)),
            format!("{:.2}", rounds.max(arm)),
        ]);
        report.keep(name, "ms", &rounds, arm);
        if leash.is_some() {
            panel.bar(*name, Tone::Leash, added);
            report.claim(Claim { what: format!("added to a start by `{name}`"), unit: "ms", found: added, goal: GOAL });
        }
    }
    report.panel(panel);
    Ok(report)
}

fn first_byte(leash: Option<&[&str]>) -> Outcome<f64> {
    let failed = |error: std::io::Error| Failure::new(format!("the server does not answer: {error}"));
    let scene = super::scene()?;
    let words = super::words(&scene, leash, &["echo"]);
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());

    let start = now();
    let mut server = command.spawn().map_err(failed)?;
    let (Some(mut input), Some(mut output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(Failure::new("the server has no pipes"));
    };
    input.write_all(b"x").map_err(failed)?;
    output.read_exact(&mut [0]).map_err(failed)?;
    let took = now() - start;

    drop(input);
    let status = server.wait().map_err(failed)?;
    match status.success() {
        true => Ok(millis(took)),
        false => Err(Failure::new(format!("the server ended with {status}"))),
    }
}
