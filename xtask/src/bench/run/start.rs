//! What leash adds to the start of a server: from the spawn to the first byte that comes back.

use std::io::{Read, Write};
use std::process::Stdio;

use super::super::report::Report;
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

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let rounds = Rounds::take(effort.pick(5, 100), ARMS.len(), |arm| first_byte(ARMS[arm].1))?;
    let mut report = Report::new(
        "Start of a server, spawn to first echoed byte (target: under 5 ms added)",
        ["start", "median ms [95 %]", "added ms [95 %]", "max ms"],
    );
    for (arm, (name, _)) in ARMS.iter().enumerate() {
        report.row([
            (*name).into(),
            format!("{:.2}", rounds.median(arm)),
            format!("{:.2}", rounds.difference(arm, 0)),
            format!("{:.2}", rounds.max(arm)),
        ]);
        report.keep(name, "ms", &rounds, arm);
    }
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
