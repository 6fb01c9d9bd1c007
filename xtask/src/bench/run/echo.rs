//! A line to the server and back, through `leash run` and without it. The server has the host's own pipes, so the two
//! should not differ; the bench would show it if a process came in between. All run on one processor.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use testkit::sys::Step;

use super::super::plot::{Goal, Panel, Tone};
use super::super::processor::on_one_processor;
use super::super::report::{Claim, Report};
use super::super::stats::{Rounds, median};
use super::super::{Effort, now};
use crate::step::{Failure, Outcome};

/// The size of a small request.
const LINE: usize = 200;

/// A batch is short enough that both arms see the same load on the machine, and long enough that reading the clock
/// costs nothing.
const BATCH: usize = 500;

/// The way in which a server is started.
#[derive(Clone, Copy)]
enum Start {
    Bare,
    /// As the Python SDK does, and as leash does: with autogroup scheduling, the kernel then switches between two
    /// groups on every message, which costs time.
    OwnSession,
    Leash,
}

const ARMS: [(&str, Start); 3] = [
    ("bare pipe", Start::Bare),
    ("bare pipe, server in its own session", Start::OwnSession),
    ("leash run", Start::Leash),
];

/// No difference; the interval covers the noise.
const GOAL: Goal = Goal::AtMost(1.0);

const ABOUT: &str = "leash is not on the data path: the server has the host's own pipes. The difference to the bare \
pipe is the server's own terminal session: the kernel's scheduler switches between it and the host's session on every \
message. The second row shows that alone. leash needs the session as a proof (docs/explain/life-of-a-tree.md).";

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    on_one_processor(&[], || samples(effort)).map(|samples| report(&Rounds::of(samples)))
}

/// Microseconds per round trip, of each arm in each round.
fn samples(effort: Effort) -> Outcome<Vec<Vec<f64>>> {
    let batches = effort.pick(2, 20);
    let mut samples = vec![Vec::new(); ARMS.len()];
    for _ in 0..effort.pick(3, 25) {
        // New processes every time: their memory layout is part of the noise.
        let mut servers = ARMS.iter().map(|(_, start)| Server::start(*start)).collect::<Outcome<Vec<_>>>()?;
        servers.iter_mut().try_for_each(|server| server.batch().map(drop))?;
        let taken = Rounds::take(batches, servers.len(), |arm| servers[arm].batch())?;
        for (arm, samples) in samples.iter_mut().enumerate() {
            samples.push(median(taken.samples(arm).iter().copied()));
        }
        servers.into_iter().try_for_each(Server::finish)?;
    }
    Ok(samples)
}

fn report(rounds: &Rounds) -> Report {
    let mut report = Report::new(
        format!("Echo round trip of a {LINE}-byte line through `leash run`"),
        ABOUT,
        ["path", "median µs [95 %]", "ratio to bare [95 %]", "ratio to own session [95 %]"],
    );
    let mut panel = Panel::ratios("round trip, as a multiple of the bare pipe's").goal(GOAL);
    for (arm, (name, start)) in ARMS.iter().enumerate() {
        let (to_bare, to_session) = (rounds.ratio(arm, 0), rounds.ratio(arm, 1));
        report.row([(*name).into(), format!("{:.2}", rounds.median(arm)), to_bare.to_string(), to_session.to_string()]);
        report.keep(name, "µs", rounds, arm);
        let tone = match start {
            Start::Bare | Start::OwnSession => Tone::Floor,
            Start::Leash => Tone::Leash,
        };
        panel.bar(*name, tone, to_bare);
        if tone == Tone::Leash {
            let what = "round trip of a line through `leash run`, to a bare pipe";
            report.claim(Claim { what: what.into(), unit: "", found: to_bare, goal: GOAL });
            let what = format!("{what} whose server has its own session");
            report.claim(Claim { what, unit: "", found: to_session, goal: GOAL });
        }
    }
    report.panel(panel);
    report
}

/// A `zoo echo`, directly or behind leash, and our ends of its pipes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    // Dropped last: all processes use it.
    _scene: testkit::scene::Scene,
}

impl Server {
    fn start(start: Start) -> Outcome<Self> {
        let scene = super::scene()?;
        let leash: Option<&[&str]> = match start {
            Start::Leash => Some(&[]),
            Start::Bare | Start::OwnSession => None,
        };
        let words = super::words(&scene, leash, &["echo"]);
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Start::OwnSession = start {
            testkit::sys::prepare(&mut command, vec![Step::OwnSession]);
        }
        let mut child = command.spawn().map_err(|error| Failure::new(format!("cannot start the server: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the server has no pipes"));
        };
        let mut line = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"pad":""#.to_vec();
        line.resize(LINE - 4, b'x');
        line.extend_from_slice(b"\"}}\n");
        Ok(Self { child, input, output: BufReader::new(output), line, _scene: scene })
    }

    /// Microseconds per round trip.
    fn batch(&mut self) -> Outcome<f64> {
        let mut answer = Vec::with_capacity(LINE);
        let start = now();
        for _ in 0..BATCH {
            answer.clear();
            let sent = self.input.write_all(&self.line);
            sent.and_then(|()| self.output.read_until(b'\n', &mut answer))
                .map_err(|error| Failure::new(format!("the server does not answer: {error}")))?;
        }
        let took = now() - start;
        match answer == self.line {
            true => Ok(took.as_secs_f64() * 1e6 / BATCH as f64),
            false => Err(Failure::new("the server answered something else")),
        }
    }

    fn finish(self) -> Outcome {
        let Self { mut child, input, output, .. } = self;
        drop((input, output));
        let status = child.wait().map_err(|error| Failure::new(error.to_string()))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("the server ended with {status}"))),
        }
    }
}
