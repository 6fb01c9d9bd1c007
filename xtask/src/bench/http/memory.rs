//! The memory of a gateway per idle session, without the kernel's memory for sockets.

use std::time::Duration;

use rustix::process::Pid;
use testkit::wait;

use super::super::Plan;
use super::super::plot::{Goal, Panel};
use super::super::proc::{descendants, kilobytes, raise_descriptors};
use super::super::report::{Claim, Report};
use super::super::stats::{Rounds, median};
use super::client::{Connection, Listening, Session};
use super::gateway::{Behind, Front, Gateway, Stage, Way};
use super::peers::Peer;
use crate::step::{Failure, Outcome, say};

/// The last one is the default limit of leash.
const SIZES: [usize; 4] = [1, 200, 1_000, 10_000];

/// The largest numbers of sessions.
#[derive(Clone, Copy)]
struct Bounds {
    many: usize,
    /// For leash in front of a server per session, with no connection.
    trees: usize,
    /// For peers, and for all others that start a server per session.
    few: usize,
}

const WHOLE: Bounds = Bounds { many: 10_000, trees: 1_000, few: 200 };

/// Enough to see that the bench works.
const SHORT: Bounds = Bounds { many: 1_000, trees: 30, few: 30 };

/// For the processes of leash beside the gateway, in kB per stdio session.
const BESIDE: Goal = Goal::AtMost(100.0);

const ABOUT: &str = "what each idle session adds to the private memory of the gateway's process: (memory with the most sessions - \
memory with one) / sessions in between. The sockets' memory in the kernel is not in it. Beside it are processes that the gateway \
has for itself, servers excepted: of leash in front of stdio, the supervisor of all trees and the keeper of each. Of these, pages that \
differ from every file are counted (`Pss_Dirty`), and one that several processes share counts once. It is filled three times at \
most: an interval is the range of these.";

/// The descriptors of a process besides those of sessions.
const SPARE: u64 = 500;

/// The way in which a session is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Its client is not connected.
    Alone,
    /// Its client keeps the connection.
    Connected,
    /// Its client listens to the event stream.
    Listening,
}

impl Held {
    const ALL: [Self; 3] = [Self::Alone, Self::Connected, Self::Listening];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "no connection",
            Self::Connected => "an idle connection",
            Self::Listening => "an open GET stream",
        }
    }

    /// The target of leash, in KiB.
    fn goal(self) -> Option<Goal> {
        match self {
            Self::Alone => Some(Goal::AtMost(8.0)),
            Self::Connected => Some(Goal::AtMost(9.0)),
            Self::Listening => None,
        }
    }

    /// The largest possible number of sessions. A gateway has one descriptor for each connection and two for each
    /// stream, because the stream to the server needs one as well.
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
    /// The numbers of sessions at which it is measured; ascending.
    sizes: Vec<usize>,
    /// A measurement per repetition.
    found: Outcome<Vec<Filled>>,
}

/// The memory at every size that was reached, in kB.
struct Filled {
    private: Vec<f64>,
    /// The memory of the gateway's other processes, without servers.
    beside: Vec<f64>,
}

/// The memory of each further session, in KiB.
fn slope(sizes: &[usize], kilobytes: &[f64]) -> f64 {
    let last = sizes.len() - 1;
    (kilobytes[last] - kilobytes[0]) / (sizes[last] - sizes[0]) as f64
}

pub(super) fn measure(plan: &Plan<'_>) -> Outcome<Report> {
    let allowed = raise_descriptors(2 * SIZES[3] as u64 + SPARE);
    let stage = Stage::set(plan.workspace)?;
    let mut cases = cases(allowed, plan.effort.pick(SHORT, WHOLE), plan.all_peers);
    for _ in 0..plan.effort.pick(1, 3) {
        for case in &mut cases {
            case.measure(&stage)?;
        }
    }
    Ok(report(&cases))
}

/// The cases, with as many sessions as `descriptors` allow.
fn cases(descriptors: u64, bounds: Bounds, all_peers: bool) -> Vec<Case> {
    let peers = |behind: Behind| Peer::chosen(all_peers).filter(move |peer| peer.can(behind)).map(Front::Peer);
    let ways = |behind: Behind| {
        [Front::Floor, Front::Leash].into_iter().chain(peers(behind)).map(move |front| Way { front, behind })
    };
    let case = |way: Way, held: Held| {
        let is_many = way.behind == Behind::Http && !matches!(way.front, Front::Peer(_));
        let is_leash = matches!(way.front, Front::Leash);
        let most = match held {
            _ if is_many => bounds.many.min(held.most(descriptors)),
            Held::Alone if is_leash => bounds.trees,
            _ => bounds.few,
        };
        let mut sizes: Vec<usize> = SIZES.iter().map(|&size| size.min(most)).collect();
        sizes.dedup();
        Case { way, held, sizes, found: Ok(Vec::new()) }
    };
    ways(Behind::Http).chain(ways(Behind::Stdio)).flat_map(|way| Held::ALL.map(|held| case(way, held))).collect()
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

/// The objects that hold a session open.
pub(super) type Holding = (Session, Option<Connection>, Option<Listening>);

pub(super) async fn open(gateway: &Gateway, held: Held, count: usize) -> Outcome<Vec<Holding>> {
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

/// The smallest of some readings: memory that was only needed to open the sessions may be freed meanwhile.
pub(super) fn settled(read: &dyn Fn() -> Outcome<f64>) -> Outcome<f64> {
    let mut least = read()?;
    for _ in 0..5 {
        wait::step(Duration::from_millis(100));
        least = least.min(read()?);
    }
    Ok(least)
}

/// The changed memory of all processes below the gateway, without the servers, which are this same program.
fn beside(gateway: Pid) -> f64 {
    let program = |pid: Pid| std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok();
    let ours = program(rustix::process::getpid());
    let others = descendants(gateway).into_iter().filter(|&pid| program(pid) != ours);
    // A process that exits meanwhile counts as zero.
    others.filter_map(|pid| kilobytes(pid, "Pss_Dirty:").ok()).sum()
}

fn report(cases: &[Case]) -> Report {
    let mut report = Report::new(
        "Private memory of a gateway with idle sessions",
        ABOUT,
        [
            "gateway",
            "each session has",
            "kB at 1",
            "at 200",
            "at 1,000",
            "at 10,000",
            "KiB per session [95 %]",
            "beside it, per session",
        ],
    );
    for held in Held::ALL {
        let mut panel = Panel::new(format!("KiB for each session with {}", held.name()));
        if let Some(goal) = held.goal() {
            panel = panel.goal(goal);
        }
        cases.iter().filter(|case| case.held == held).for_each(|case| case.add(&mut report, &mut panel));
        report.panel(panel);
    }
    report
}

impl Case {
    fn add(&self, report: &mut Report, panel: &mut Panel) {
        let (name, held) = (self.way.name(), self.held.name());
        let found = match &self.found {
            Ok(found) => found,
            Err(why) => {
                panel.missing(&name, self.way.tone());
                return report.missing(&format!("{name}, {held}"), &why.to_string());
            }
        };
        let slopes = Rounds::of(vec![
            found.iter().map(|filled| slope(&self.sizes, &filled.private)).collect(),
            found.iter().map(|filled| slope(&self.sizes, &filled.beside)).collect(),
        ]);
        let each = slopes.median(0);
        let [one, few, many, most] = [0, 1, 2, 3].map(|index| self.at(found, index));
        let beside = format!("{:.1}", slopes.median(1).value);
        if let (Way { front: Front::Leash, behind: Behind::Stdio }, Held::Alone) = (self.way, self.held) {
            let what = format!("{name}: memory of leash's processes beside the gateway, per session");
            report.claim(Claim { what, unit: "kB", found: slopes.median(1), goal: BESIDE });
        }
        report.row([name.clone(), held.into(), one, few, many, most, format!("{each:.1}"), beside]);
        report.keep(&format!("{name}, {held}"), "KiB/session", &slopes, 0);
        panel.bar(&name, self.way.tone(), each);
        if let (Way { front: Front::Leash, behind: Behind::Http }, Some(goal)) = (self.way, self.held.goal()) {
            let what = format!("{name}: memory of a session with {held}");
            report.claim(Claim { what, unit: "KiB", found: each, goal });
        }
    }

    /// The memory at one of the sizes, in kB.
    fn at(&self, found: &[Filled], index: usize) -> String {
        let values = found.iter().filter_map(|filled| filled.private.get(index).copied());
        match (median(values), self.sizes.get(index)) {
            (value, Some(size)) if *size == SIZES[index] => format!("{value:.0}"),
            (value, Some(size)) => format!("{value:.0} (with {size})"),
            (_, None) => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_per_session_is_the_increase_divided_by_the_sessions() {
        assert_eq!(slope(&[1, 200], &[1_000.0, 1_199.0]), 1.0);
        assert_eq!(slope(&[1, 200, 10_000], &[500.0, 700.0, 500.0 + 8.0 * 9_999.0]), 8.0);
    }

    #[test]
    fn stdio_servers_and_peers_get_fewer_sessions() {
        let sizes = |descriptors, front, behind| -> Vec<Vec<usize>> {
            let cases = cases(descriptors, WHOLE, true).into_iter();
            cases.filter(|case| case.way == Way { front, behind }).map(|case| case.sizes).collect()
        };
        assert_eq!(sizes(100_000, Front::Leash, Behind::Http), [SIZES; 3]);
        let few = vec![1, WHOLE.few];
        assert_eq!(sizes(100_000, Front::Leash, Behind::Stdio), [vec![1, 200, WHOLE.trees], few.clone(), few]);
        assert_eq!(sizes(100_000, Front::Peer(Peer::Crate), Behind::Http), [[1, WHOLE.few]; 3]);
        assert!(sizes(100_000, Front::Peer(Peer::Supergateway), Behind::Http).is_empty());
    }

    #[test]
    fn number_of_sessions_respects_the_descriptor_limit() {
        let held = cases(20_000, WHOLE, false)
            .into_iter()
            .filter(|case| case.way == Way { front: Front::Floor, behind: Behind::Http });
        let last: Vec<_> = held.map(|case| case.sizes.last().copied()).collect();
        assert_eq!(last, [Some(10_000), Some(10_000), Some(9_750)]);
    }
}
