//! Sessions that are opened, used once and closed as fast as possible. Nothing of them may be left.

use std::time::Duration;

use testkit::wait;
use tokio::task::JoinSet;

use super::super::plot::{Goal, Panel};
use super::super::proc::{descendants, kilobytes};
use super::super::report::{Claim, Report};
use super::super::stats::{Estimate, Rounds};
use super::super::{Plan, now};
use super::client::{Connection, Endpoint};
use super::gateway::{Behind, Front, Gateway, Stage, Way};
use super::load::AT_ONCE;
use super::peers::Peer;
use crate::step::{Failure, Outcome, say};

/// The use of connections by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
    /// All sessions of a client on one connection.
    Kept,
    /// A new connection for each session, as short-lived programs use.
    New,
}

struct Arm {
    way: Way,
    connections: Connections,
    gateway: Outcome<Gateway>,
    /// Sessions per second, in each round.
    rates: Vec<f64>,
    /// Sessions so far and private memory in kB, after each round.
    memory: Vec<(u64, f64)>,
}

const ABOUT: &str = "sessions as fast as possible, 16 at a time: `initialize`, a call, DELETE. In front of stdio, \
leash and supergateway start a server for each session and end it; the floor and all three programs called mcp-proxy \
have one server for all sessions. Memory is the gateway's own, after a quarter of the rounds and after all; processes \
are those below it when all sessions are closed and two seconds have passed.";

/// Bytes left per session. This much is heap fragmentation, not memory that is still held.
const LEFT: Goal = Goal::AtMost(16.0);

/// HTTP sessions per second of leash, on kept connections.
const RATE: Goal = Goal::AtLeast(5_500.0);

/// With fewer sessions, the bench would measure heap fragmentation only.
const ENOUGH: u64 = 10_000;

pub(super) fn measure(plan: &Plan<'_>) -> Outcome<Report> {
    let stage = Stage::set(plan.workspace)?;
    let mut arms = Vec::new();
    for (way, connections) in ways(plan.all_peers) {
        let arm = Arm { way, connections, gateway: stage.start(way), rates: Vec::new(), memory: Vec::new() };
        arm.forgive()?;
        arms.push(arm);
    }
    let time = plan.effort.pick(Duration::from_millis(250), Duration::from_secs(1));
    for round in 0..plan.effort.pick(4, 16) {
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            arms[index].round(&stage, time)?;
        }
    }
    Ok(report(&arms))
}

/// All ways that are compared.
fn ways(all_peers: bool) -> Vec<(Way, Connections)> {
    let peers = |behind: Behind| Peer::chosen(all_peers).filter(move |peer| peer.can(behind)).map(Front::Peer);
    let mut ways = Vec::new();
    for connections in [Connections::Kept, Connections::New] {
        let fronts = [Front::Nothing, Front::Floor, Front::Leash].into_iter().chain(peers(Behind::Http));
        ways.extend(fronts.map(|front| (Way { front, behind: Behind::Http }, connections)));
    }
    // The cost of a connection is negligible next to the start of a server.
    let fronts = [Front::Floor, Front::Leash].into_iter().chain(peers(Behind::Stdio));
    ways.extend(fronts.map(|front| (Way { front, behind: Behind::Stdio }, Connections::Kept)));
    ways
}

impl Arm {
    fn name(&self) -> String {
        let connections = match self.connections {
            Connections::Kept => "kept connections",
            Connections::New => "a connection each",
        };
        format!("{}, {connections}", self.way.name())
    }

    fn round(&mut self, stage: &Stage, time: Duration) -> Outcome {
        let Ok(gateway) = &self.gateway else {
            return Ok(());
        };
        let churned = stage.driver.run(time, churn(gateway.endpoint.clone(), self.connections, time));
        let measured = churned.and_then(|churned| Ok((churned, kilobytes(gateway.pid(), "Private_Dirty:")?)));
        match measured {
            Ok(((sessions, took), memory)) => {
                self.rates.push(sessions as f64 / took.as_secs_f64());
                let before = self.memory.last().map_or(0, |(sessions, _)| *sessions);
                self.memory.push((before + sessions, memory));
                Ok(())
            }
            Err(why) => {
                self.gateway = Err(why);
                self.forgive()
            }
        }
    }

    /// The number of processes of the gateway when it has no clients any more.
    fn processes(&self) -> usize {
        let Ok(gateway) = &self.gateway else {
            return 0;
        };
        let mut least = usize::MAX;
        let _ = wait::within(Duration::from_secs(2), || {
            least = least.min(descendants(gateway.pid()).len());
            (least == 0).then_some(())
        });
        least
    }

    /// Fails if a way is missing that the others are compared with; reports any other missing way.
    fn forgive(&self) -> Outcome {
        match &self.gateway {
            Err(why) if self.way.is_needed() => Err(Failure::new(format!("{}: {why}", self.name()))),
            Err(why) => {
                say("Missing", format!("{}: {why}", self.name()));
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Opens as many sessions as fit into `time`, with some always alive. Returns their number, and the time it took.
async fn churn(endpoint: Endpoint, connections: Connections, time: Duration) -> Outcome<(u64, Duration)> {
    let start = now();
    let mut clients = JoinSet::new();
    for _ in 0..AT_ONCE {
        let endpoint = endpoint.clone();
        clients.spawn_local(async move {
            let mut sessions = 0;
            let mut connection = Connection::open(&endpoint).await?;
            while now() - start < time {
                if connections == Connections::New && sessions > 0 {
                    connection = Connection::open(&endpoint).await?;
                }
                let session = connection.initialize(&endpoint).await?;
                connection.call(&endpoint, &session).await?;
                connection.delete(&endpoint, &session).await?;
                sessions += 1;
            }
            Ok::<u64, Failure>(sessions)
        });
    }
    let mut total = 0;
    while let Some(done) = clients.join_next().await {
        total += done.map_err(|error| Failure::new(error.to_string()))??;
    }
    Ok((total, now() - start))
}

/// The memory at a quarter and at the end, in kB, and the bytes left by each session in between.
fn growth(memory: &[(u64, f64)]) -> (f64, f64, f64) {
    let quarter = memory.len().div_ceil(4) - 1;
    let ((sessions_before, before), (sessions_after, after)) = (memory[quarter], memory[memory.len() - 1]);
    (before, after, (after - before) * 1024.0 / (sessions_after - sessions_before).max(1) as f64)
}

fn report(arms: &[Arm]) -> Report {
    let mut report = Report::new(
        "Sessions opened, used once and closed",
        ABOUT,
        [
            "path",
            "sessions/s [95 %]",
            "to floor [95 %]",
            "kB at 25 %",
            "kB at the end",
            "bytes left per session",
            "processes at the end",
        ],
    );
    let present: Vec<&Arm> = arms.iter().filter(|arm| arm.gateway.is_ok()).collect();
    let rates = Rounds::of(present.iter().map(|arm| arm.rates.clone()).collect());
    let mut panel = Panel::ratios("sessions per second, as a multiple of the floor's");
    for arm in arms {
        let (name, tone) = (arm.name(), arm.way.tone());
        let position = |front: Front| {
            let way = Way { front, ..arm.way };
            present.iter().position(|other| other.way == way && other.connections == arm.connections)
        };
        let (index, floor) = match (&arm.gateway, position(arm.way.front), position(Front::Floor)) {
            (Ok(_), Some(index), Some(floor)) => (index, floor),
            (found, ..) => {
                let why = found.as_ref().err().map(Failure::to_string);
                report.missing(&name, &why.unwrap_or_else(|| "there is nothing to compare it to".into()));
                panel.missing(&name, tone);
                continue;
            }
        };
        let (before, after, left) = growth(&arm.memory);
        let ratio = rates.ratio(index, floor);
        report.row([
            name.clone(),
            format!("{:.0}", rates.median(index)),
            format!("{ratio:.3}"),
            format!("{before:.0}"),
            format!("{after:.0}"),
            format!("{left:.1}"),
            arm.processes().to_string(),
        ]);
        panel.bar(&name, tone, ratio);
        report.keep(&name, "1/s", &rates, index);
        let is_leash = arm.way == (Way { front: Front::Leash, behind: Behind::Http });
        if is_leash && arm.connections == Connections::Kept {
            let what = format!("{name}: sessions per second");
            report.claim(Claim { what, unit: "1/s", found: rates.median(index), goal: RATE });
        }
        let is_enough = arm.memory.last().is_some_and(|(sessions, _)| *sessions >= ENOUGH);
        if is_enough && is_leash {
            let what = format!("{name}: bytes left by a closed session");
            report.claim(Claim { what, unit: "", found: Estimate::single(left), goal: LEFT });
        }
    }
    report.panel(panel);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_counted_after_the_first_quarter() {
        let flat = [(100, 900.0), (200, 900.0), (300, 900.0), (400, 900.0)];
        assert_eq!(growth(&flat), (900.0, 900.0, 0.0));
        let leaking: Vec<(u64, f64)> = (1..=16).map(|round| (round * 1024, 500.0 + round as f64)).collect();
        assert_eq!(growth(&leaking), (504.0, 516.0, 1.0));
    }

    #[test]
    fn one_round_has_no_growth() {
        assert_eq!(growth(&[(10, 900.0)]), (900.0, 900.0, 0.0));
    }
}
