//! Sessions that come and go: opened, used once and closed, as fast as they can be. Nothing may be left of them.

use std::time::Duration;

use tokio::task::JoinSet;

use super::super::proc::kilobytes;
use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, now};
use super::client::{Connection, Endpoint};
use super::gateway::{Behind, Front, Gateway, Stage, Way};
use super::load::AT_ONCE;
use crate::step::{Failure, Outcome, Workspace, say};

/// What a client does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
    /// All sessions of a client on one.
    Kept,
    /// One for each session, as programs do that come and go themselves.
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

pub(super) fn measure(effort: Effort, workspace: &Workspace) -> Outcome<Report> {
    let stage = Stage::set(workspace)?;
    let mut arms = Vec::new();
    for connections in [Connections::Kept, Connections::New] {
        for front in [Front::Nothing, Front::Floor, Front::Leash] {
            let way = Way { front, behind: Behind::Http };
            let arm = Arm { way, connections, gateway: stage.start(way), rates: Vec::new(), memory: Vec::new() };
            arm.forgive()?;
            arms.push(arm);
        }
    }
    let time = effort.pick(Duration::from_millis(500), Duration::from_millis(1_500));
    for round in 0..effort.pick(4, 16) {
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            arms[index].round(&stage, time)?;
        }
    }
    Ok(report(&arms))
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

    /// leash may be missing; what it is compared to may not.
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

/// As many sessions as fit into `time`, of which some are always alive. How many that were, and how long it took.
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

/// Memory at a quarter and at the end, in kB, and the bytes that each session in between has left.
fn growth(memory: &[(u64, f64)]) -> (f64, f64, f64) {
    let quarter = memory.len().div_ceil(4) - 1;
    let ((sessions_before, before), (sessions_after, after)) = (memory[quarter], memory[memory.len() - 1]);
    (before, after, (after - before) * 1024.0 / (sessions_after - sessions_before).max(1) as f64)
}

fn report(arms: &[Arm]) -> Report {
    let mut report = Report::new(
        "Sessions opened, used once and closed, 16 at a time (target for leash: memory stays flat)",
        ["path", "sessions/s [95 %]", "to floor [95 %]", "kB at 25 %", "kB at the end", "bytes left per session"],
    );
    let present: Vec<&Arm> = arms.iter().filter(|arm| arm.gateway.is_ok()).collect();
    let rates = Rounds::of(present.iter().map(|arm| arm.rates.clone()).collect());
    for arm in arms {
        let position = |front: Front| {
            present.iter().position(|other| other.way.front == front && other.connections == arm.connections)
        };
        match (&arm.gateway, position(arm.way.front), position(Front::Floor)) {
            (Ok(_), Some(index), Some(floor)) => {
                let (before, after, left) = growth(&arm.memory);
                report.row([
                    arm.name(),
                    format!("{:.0}", rates.median(index)),
                    format!("{:.2}", rates.ratio(index, floor)),
                    format!("{before:.0}"),
                    format!("{after:.0}"),
                    format!("{left:.1}"),
                ]);
                report.keep(&arm.name(), "1/s", &rates, index);
            }
            (Err(why), ..) => report.missing(&arm.name(), &why.to_string()),
            (Ok(_), ..) => report.missing(&arm.name(), "there is nothing to compare it to"),
        }
    }
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
