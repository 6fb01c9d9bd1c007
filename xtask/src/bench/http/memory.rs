//! What a gateway takes for each session that is held and does nothing. What the kernel takes for sockets is not in it.

use std::time::Duration;

use rustix::process::Pid;
use testkit::wait;

use super::super::Effort;
use super::super::proc::{descendants, kilobytes, raise_descriptors};
use super::super::report::Report;
use super::super::stats::{Rounds, median};
use super::client::{Connection, Listening, Session};
use super::gateway::{Behind, Front, Gateway, Stage, Way};
use super::peers::Peer;
use crate::step::{Failure, Outcome, Workspace, say};

/// The last is the default cap of leash.
const SIZES: [usize; 4] = [1, 200, 1_000, 10_000];

/// Peers, and gateways that start a server per session, go no further than this.
const FEW: usize = 200;

/// Descriptors of a process besides those of sessions.
const SPARE: u64 = 500;

/// How a session is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Its client is not connected.
    Alone,
    /// Its client keeps the connection.
    Connected,
    /// Its client listens to the event stream.
    Listening,
}

impl Held {
    const ALL: [Self; 3] = [Self::Alone, Self::Connected, Self::Listening];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "no connection",
            Self::Connected => "an idle connection",
            Self::Listening => "an open GET stream",
        }
    }

    /// How many can be had: a gateway has a descriptor for each connection, and two for each stream, as the server has
    /// one as well.
    fn most(self, descriptors: u64) -> usize {
        let each = match self {
            Self::Alone | Self::Connected => 1,
            Self::Listening => 2,
        };
        usize::try_from(descriptors.saturating_sub(SPARE) / each).unwrap_or(usize::MAX)
    }
}

/// One gateway that is filled with sessions of one kind.
struct Case {
    way: Way,
    held: Held,
    /// How many sessions there are when it is looked at; ascending.
    sizes: Vec<usize>,
    /// A measurement per repetition.
    found: Outcome<Vec<Filled>>,
}

/// Memory at every size that was reached, in kB.
struct Filled {
    private: Vec<f64>,
    /// Of the processes that the gateway has beside itself, servers excepted.
    beside: Vec<f64>,
}

/// What each further session takes, in KiB.
fn slope(sizes: &[usize], kilobytes: &[f64]) -> f64 {
    let last = sizes.len() - 1;
    (kilobytes[last] - kilobytes[0]) / (sizes[last] - sizes[0]) as f64
}

pub(super) fn measure(effort: Effort, workspace: &Workspace) -> Outcome<Report> {
    let allowed = raise_descriptors(2 * SIZES[3] as u64 + SPARE);
    let stage = Stage::set(workspace)?;
    let mut cases = cases(allowed);
    for _ in 0..effort.pick(1, 3) {
        for case in &mut cases {
            case.measure(&stage)?;
        }
    }
    Ok(report(&cases))
}

/// With as many sessions as can be had with `descriptors`.
fn cases(descriptors: u64) -> Vec<Case> {
    let ways = |behind: Behind, fronts: Vec<Front>| fronts.into_iter().map(move |front| Way { front, behind });
    let peers = |behind: Behind| Peer::ALL.into_iter().filter(move |peer| peer.can(behind)).map(Front::Peer);
    let http = ways(Behind::Http, [Front::Floor, Front::Leash].into_iter().chain(peers(Behind::Http)).collect());
    let stdio = ways(Behind::Stdio, [Front::Floor, Front::Leash].into_iter().chain(peers(Behind::Stdio)).collect());
    let case = |way: Way, held: Held| {
        let many = way.behind == Behind::Http && !matches!(way.front, Front::Peer(_));
        let most = if many { held.most(descriptors) } else { FEW };
        let mut sizes: Vec<usize> = SIZES.iter().map(|&size| size.min(most)).collect();
        sizes.dedup();
        Case { way, held, sizes, found: Ok(Vec::new()) }
    };
    http.chain(stdio).flat_map(|way| Held::ALL.map(|held| case(way, held))).collect()
}

impl Case {
    fn measure(&mut self, stage: &Stage) -> Outcome {
        let Ok(found) = &mut self.found else {
            return Ok(());
        };
        let name = format!("{}, {}", self.way.name(), self.held.name());
        say("Filling", &name);
        match fill(stage, self.way, self.held, &self.sizes) {
            Ok(filled) => found.push(filled),
            Err(why) if self.way.is_needed() => return Err(Failure::new(format!("{name}: {why}"))),
            Err(why) => {
                say("Missing", format!("{name}: {why}"));
                self.found = Err(why);
            }
        }
        Ok(())
    }
}

fn fill(stage: &Stage, way: Way, held: Held, sizes: &[usize]) -> Outcome<Filled> {
    let gateway = stage.start(way)?;
    let mut holdings = Vec::new();
    let mut filled = Filled { private: Vec::new(), beside: Vec::new() };
    for size in sizes {
        let missing = size - holdings.len();
        holdings.extend(stage.driver.run(Duration::ZERO, open(&gateway, held, missing))?);
        filled.private.push(settled(&|| kilobytes(gateway.pid(), "Private_Dirty:"))?);
        filled.beside.push(beside(gateway.pid()));
    }
    Ok(filled)
}

/// What keeps a session as it is held.
type Holding = (Session, Option<Connection>, Option<Listening>);

async fn open(gateway: &Gateway, held: Held, count: usize) -> Outcome<Vec<Holding>> {
    let to = &gateway.endpoint;
    let mut connection = Connection::open(to).await?;
    let mut opened = Vec::with_capacity(count);
    for _ in 0..count {
        let session = connection.initialize(to).await?;
        opened.push(match held {
            Held::Alone => (session, None, None),
            Held::Connected | Held::Listening => {
                let mut own = std::mem::replace(&mut connection, Connection::open(to).await?);
                let listening = match held {
                    Held::Listening => Some(own.listen(to, &session).await?),
                    Held::Alone | Held::Connected => None,
                };
                (session, Some(own), listening)
            }
        });
    }
    Ok(opened)
}

/// The smallest of some readings: what was only needed to open the sessions may go meanwhile.
fn settled(read: &dyn Fn() -> Outcome<f64>) -> Outcome<f64> {
    let mut least = read()?;
    for _ in 0..5 {
        wait::step(Duration::from_millis(100));
        least = least.min(read()?);
    }
    Ok(least)
}

/// The private memory of all processes below the gateway but the servers, which are this very program.
fn beside(gateway: Pid) -> f64 {
    let program = |pid: Pid| std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok();
    let ours = program(rustix::process::getpid());
    let others = descendants(gateway).into_iter().filter(|&pid| program(pid) != ours);
    // One that ends meanwhile takes nothing.
    others.filter_map(|pid| kilobytes(pid, "Private_Dirty:").ok()).sum()
}

fn report(cases: &[Case]) -> Report {
    let title = "Private memory of a gateway with idle sessions (targets for leash: 8 KiB a session without a connection, 20 KiB with one)";
    let mut report = Report::new(
        title,
        [
            "gateway",
            "each session has",
            "kB at 1",
            "at 200",
            "at 1,000",
            "at 10,000",
            "KiB per session",
            "beside it, per session",
        ],
    );
    for case in cases {
        let name = case.way.name();
        let found = match &case.found {
            Ok(found) => found,
            Err(why) => {
                report.missing(&format!("{name}, {}", case.held.name()), &why.to_string());
                continue;
            }
        };
        let at = |index: usize| {
            let values = found.iter().filter_map(|filled| filled.private.get(index).copied());
            match (median(values), case.sizes.get(index)) {
                (value, Some(size)) if *size == SIZES[index] => format!("{value:.0}"),
                (value, Some(size)) => format!("{value:.0} (with {size})"),
                (_, None) => "-".to_owned(),
            }
        };
        let slopes = Rounds::of(vec![
            found.iter().map(|filled| slope(&case.sizes, &filled.private)).collect(),
            found.iter().map(|filled| slope(&case.sizes, &filled.beside)).collect(),
        ]);
        report.row([
            name.clone(),
            case.held.name().into(),
            at(0),
            at(1),
            at(2),
            at(3),
            format!("{:.1}", slopes.median(0).value),
            format!("{:.1}", slopes.median(1).value),
        ]);
        report.keep(&format!("{name}, {}", case.held.name()), "KiB/session", &slopes, 0);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_takes_is_what_was_added_by_the_number_of_them() {
        assert_eq!(slope(&[1, 200], &[1_000.0, 1_199.0]), 1.0);
        assert_eq!(slope(&[1, 200, 10_000], &[500.0, 700.0, 500.0 + 8.0 * 9_999.0]), 8.0);
    }

    #[test]
    fn servers_on_stdio_and_peers_are_not_filled_to_the_end() {
        let sizes = |descriptors, front, behind| -> Vec<Vec<usize>> {
            let cases = cases(descriptors).into_iter();
            cases.filter(|case| case.way == Way { front, behind }).map(|case| case.sizes).collect()
        };
        assert_eq!(sizes(100_000, Front::Leash, Behind::Http), [SIZES; 3]);
        assert_eq!(sizes(100_000, Front::Leash, Behind::Stdio), [[1, FEW]; 3]);
        assert_eq!(sizes(100_000, Front::Peer(Peer::Crate), Behind::Http), [[1, FEW]; 3]);
        assert!(sizes(100_000, Front::Peer(Peer::Supergateway), Behind::Http).is_empty());
    }

    #[test]
    fn a_limit_of_descriptors_is_kept() {
        let held =
            cases(20_000).into_iter().filter(|case| case.way == Way { front: Front::Floor, behind: Behind::Http });
        let last: Vec<_> = held.map(|case| case.sizes.last().copied()).collect();
        assert_eq!(last, [Some(10_000), Some(10_000), Some(9_750)]);
    }
}
