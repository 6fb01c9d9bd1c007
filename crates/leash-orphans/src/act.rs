//! Ends processes that were judged. A process is signalled only if leash held its pidfd *before* the second scan and
//! it is still alive after that scan: then its PID was not reused in between, and the judged process is the signalled
//! one.

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

pub mod idle;
mod traits;
pub mod watch;

use crate::judge::verdict::{Finding, TreeRole, Verdict};
use crate::scan;
use crate::scan::resources::{self, TreeResources};
use leash_model::clock::{self, Moment, timeout_until};
use leash_model::identity::Identity;
use leash_model::receipt::{EndedBy, Fate, Holding, How, LeftOver, Reason, Receipt, TreeEnd, VERSION};
use leash_model::{duration, id, limits};
use leash_tree::platform::identity::HeldProcess;
use leash_tree::platform::proc::Proc;
use leash_tree::tree::contained_tree::left_over;
use traits::{Kinship, ProcessTraits, TreeTraits};

/// The number of scans until a tree must stop growing. Each new member requires another scan.
const SCANS: usize = 8;

/// The number of scans in a row that must find no process. While one scan reads /proc, a process that it has already
/// passed may fork.
const QUIET_SCANS: usize = 2;

/// The verdicts that may be ended, and the grace.
#[derive(Clone, Debug)]
pub struct ReapSettings {
    /// The verdicts that are sufficient.
    pub verdicts: Vec<Verdict>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// The result for a finding.
#[derive(Clone, Debug)]
pub enum ReapOutcome {
    /// Leash tried to end it: the receipt lists the processes that are left.
    Ended(Box<Receipt>),
    /// No signal was sent.
    Spared(Spared),
}

/// The reason why no signal was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// It has ended by itself.
    Gone,
    /// The second scan has another result than the first.
    Changed {
        /// The second verdict; `None`: it is no longer taken for a server.
        verdict: Option<Verdict>,
    },
    /// It starts processes faster than they can be judged.
    KeepsGrowing,
    /// The calling process is a member of the tree.
    ContainsCaller,
}

impl std::fmt::Display for Spared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spared::Gone => f.write_str("it has ended by itself"),
            Spared::Changed { verdict: Some(verdict) } => write!(f, "at a second look it is {}", verdict.word()),
            Spared::Changed { verdict: None } => f.write_str("at a second look it is no server"),
            Spared::KeepsGrowing => f.write_str("its tree keeps starting processes"),
            Spared::ContainsCaller => f.write_str("leash itself runs in it"),
        }
    }
}

/// Ends the tree of one finding. `rescan` scans and judges again.
pub fn end(
    proc: &Proc,
    root: Identity,
    settings: &ReapSettings,
    rescan: &mut dyn FnMut() -> Vec<Finding>,
) -> ReapOutcome {
    let began = Moment::now();
    let (finding, mut tree) = match confirm(proc, root, &settings.verdicts, rescan) {
        Ok(confirmed) => confirmed,
        Err(spared) => return ReapOutcome::Spared(spared),
    };
    let resources = resources::of(proc, &finding.tree);
    tree.learn();
    let how = tree.end_in_steps(settings.grace);
    let left = tree.left();
    ReapOutcome::Ended(Box::new(receipt(
        proc,
        &finding,
        ReapResult { resources, how, left, seen: tree.held.len(), began },
    )))
}

/// Holds pidfds of a tree and judges it while they are held.
fn confirm(
    proc: &Proc,
    root: Identity,
    allowed: &[Verdict],
    rescan: &mut dyn FnMut() -> Vec<Finding>,
) -> Result<(Finding, HeldTree), Spared> {
    let held = HeldProcess::open_same(proc, root).filter(HeldProcess::lives).ok_or(Spared::Gone)?;
    let mut tree =
        HeldTree { proc: *proc, held: vec![held], traits: TreeTraits::default(), since: 0, suspects: Vec::new() };
    for _ in 0..SCANS {
        let found = rescan().into_iter().find(|finding| finding.root.is(&root));
        if !tree.held[0].lives() {
            return Err(Spared::Gone);
        }
        let finding = found.ok_or(Spared::Changed { verdict: None })?;
        if !allowed.contains(&finding.verdict) {
            return Err(Spared::Changed { verdict: Some(finding.verdict) });
        }
        if finding.tree.iter().any(|id| id.pid == rustix::process::getpid().as_raw_pid()) {
            return Err(Spared::ContainsCaller);
        }
        let fresh: Vec<Identity> = finding.tree.iter().filter(|id| !tree.has(id.pid)).copied().collect();
        if fresh.is_empty() {
            // Keep only processes that this scan judged and that still live. A PID that was reused in the meantime is
            // not among them.
            let judged = |held: &HeldProcess| finding.tree.iter().any(|id| id.is(&held.id));
            tree.held.retain(|held| judged(held) && held.lives());
            let place = |held: &HeldProcess| finding.tree.iter().position(|id| id.is(&held.id));
            tree.held.sort_by_key(place);
            return Ok((finding, tree));
        }
        tree.held.extend(fresh.into_iter().filter_map(|id| HeldProcess::open_same(proc, id)));
        // The PID of a process that has died meanwhile may be reused.
        tree.held.retain(|held| held.id.is(&root) || held.lives());
    }
    Err(Spared::KeepsGrowing)
}

/// A tree whose processes are held by pidfds.
struct HeldTree {
    proc: Proc,
    /// Parents before children; signals are sent in this order, so that a parent that dies of the signal can't replace
    /// a child that has died of it before.
    held: Vec<HeldProcess>,
    /// The properties that only its processes had before the first signal.
    traits: TreeTraits,
    /// The start of the end, in clock ticks.
    since: u64,
    /// Processes that may come from the tree, with the reason. They are reported, not signalled.
    suspects: Vec<(i32, &'static str)>,
}

impl HeldTree {
    /// Records the properties that distinguish its processes from all others, before they can leave.
    fn learn(&mut self) {
        self.hold_newcomers(None);
        self.since = scan::now();
        let all = traits::all_processes(&self.proc);
        self.learn_from(&all);
    }

    fn learn_from(&mut self, all: &[ProcessTraits]) {
        let held: HashSet<(i32, u64)> = self.held.iter().map(|held| (held.id.pid, held.id.start)).collect();
        self.traits.learn(all, |seen| held.contains(&(seen.pid, seen.start)));
    }

    /// Opens pidfds of processes that have left the tree, and signals them. Returns true if there were any.
    fn hold_strays(&mut self, signal: Signal) -> bool {
        let all = traits::all_processes(&self.proc);
        let is_held = |seen: &ProcessTraits| self.held.iter().any(|held| seen.is(&held.id));
        let others: HashSet<i32> = all.iter().filter(|seen| !is_held(seen)).map(|seen| seen.pid).collect();
        let kinship = |seen: &ProcessTraits| {
            self.traits.kinship(seen, self.since, |number| others.contains(&number) && number != seen.pid)
        };
        let (mut strays, mut suspects) = (Vec::new(), Vec::new());
        for seen in all.iter().filter(|seen| others.contains(&seen.pid)) {
            match kinship(seen) {
                // Check again while the pidfd is held, because the PID may have been reused.
                Some(Kinship::Member) => strays.extend(HeldProcess::open(&self.proc, seen.pid).filter(|held| {
                    let again = traits::seen(&self.proc, seen.pid).filter(|again| again.is(&held.id));
                    again.is_some_and(|again| kinship(&again) == Some(Kinship::Member)) && held.lives()
                })),
                Some(Kinship::Suspect(why)) => suspects.push((seen.pid, why)),
                None => {}
            }
        }
        self.suspects = suspects;
        let found = !strays.is_empty();
        for held in &strays {
            let _ = held.signal(signal);
        }
        self.held.extend(strays);
        if found {
            self.learn_from(&all);
        }
        found
    }

    /// True if no process is left: no held process lives, and no scan finds a process that has left the tree.
    fn is_over(&mut self, signal: Signal) -> bool {
        (0..QUIET_SCANS).all(|_| self.living().next().is_none() && !self.hold_strays(signal))
    }

    fn has(&self, pid: i32) -> bool {
        self.held.iter().any(|held| held.id.pid == pid)
    }

    fn lives(&self, pid: i32) -> bool {
        self.living().any(|held| held.id.pid == pid)
    }

    /// Sends SIGTERM to all, waits for the grace, then sends SIGKILL to all until none is left or the limit has
    /// passed.
    fn end_in_steps(&mut self, grace: Duration) -> How {
        let began = Moment::now();
        self.signal(Signal::TERM);
        loop {
            self.wait();
            if self.is_over(Signal::TERM) {
                return How::Term;
            }
            if Moment::now().since(began) >= grace {
                break;
            }
            self.hold_newcomers(Some(Signal::TERM));
        }
        let began = Moment::now();
        loop {
            let reached = self.signal(Signal::KILL);
            let give_up = if reached { limits::GIVE_UP } else { limits::GIVE_UP_FORBIDDEN };
            self.wait();
            if self.is_over(Signal::KILL) || Moment::now().since(began) >= give_up {
                return How::Kill;
            }
            self.hold_newcomers(Some(Signal::KILL));
        }
    }

    fn living(&self) -> impl Iterator<Item = &HeldProcess> {
        self.held.iter().filter(|held| held.lives())
    }

    /// Signals all processes; returns true if at least one of them may be signalled.
    fn signal(&self, signal: Signal) -> bool {
        let mut reached = false;
        for held in self.living() {
            reached |= held.signal(signal) != Err(Errno::PERM);
            if signal == Signal::TERM {
                // A stopped process handles SIGTERM only after SIGCONT.
                let _ = held.signal(Signal::CONT);
            }
        }
        reached
    }

    /// Opens pidfds of new children of the members, and signals them as well.
    fn hold_newcomers(&mut self, signal: Option<Signal>) {
        let parents: Vec<i32> = self.living().map(|held| held.id.pid).collect();
        for parent in parents {
            for child in self.proc.children(parent).found {
                if self.lives(child) {
                    continue;
                }
                // Skip zombies that their parent has not waited for.
                let Some(held) = HeldProcess::open(&self.proc, child).filter(HeldProcess::lives) else { continue };
                // The parent is still alive after the pidfd was opened, so this is the parent's child.
                if held.stat.ppid == parent && self.lives(parent) {
                    if let Some(signal) = signal {
                        let _ = held.signal(signal);
                    }
                    self.held.push(held);
                }
            }
        }
    }

    /// Waits for one round, or until a process has died.
    fn wait(&self) {
        let mut fds: Vec<PollFd<'_>> =
            self.living().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
        if fds.is_empty() {
            return;
        }
        let now = Moment::now();
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(now + limits::SWEEP_ROUND, now)));
    }

    fn left(&self) -> Vec<LeftOver> {
        let why = |held: &HeldProcess| match held.signal(Signal::KILL) {
            Err(Errno::PERM) => "it belongs to another user (EPERM)",
            _ => "it did not exit in time",
        };
        let held = self.living().map(|held| left_over(&self.proc, held.id.pid, why(held)));
        held.chain(self.suspects.iter().map(|(pid, why)| left_over(&self.proc, *pid, why))).collect()
    }
}

struct ReapResult {
    resources: TreeResources,
    how: How,
    left: Vec<LeftOver>,
    seen: usize,
    began: Moment,
}

fn receipt(proc: &Proc, finding: &Finding, result: ReapResult) -> Receipt {
    let (ended_ms, took) = (clock::unix_ms(), Moment::now().since(result.began));
    let name = finding.server.clone().or_else(|| finding.client.clone());
    let tree = TreeEnd {
        leader: Some(finding.root),
        fate: if result.left.is_empty() { Fate::Ended } else { Fate::Left },
        members: result.seen,
        memory_bytes: result.resources.memory,
        ports: result.resources.ports.into_iter().collect(),
        locks: result.resources.locks.into_iter().collect(),
        ..TreeEnd::unknown(result.how, result.left)
    };
    Receipt {
        version: VERSION,
        session: finding.leashed.clone().unwrap_or_else(id::random),
        run: id::random(),
        name: name.unwrap_or_else(|| proc.stat(finding.root.pid).map_or_else(String::new, |stat| stat.comm)),
        labels: finding.client.iter().map(|client| ("client".to_owned(), client.clone())).collect(),
        reason: if finding.role == TreeRole::Host { Reason::StaleHost } else { Reason::Orphan },
        client: None,
        containment: None,
        refused: Vec::new(),
        holdings: vec![Holding::Tree(tree)],
        dropped_holdings: 0,
        ended_by: EndedBy::Reap,
        started_ms: ended_ms.saturating_sub(duration::as_ms(finding.age)),
        ended_ms,
        took_ms: duration::as_ms(took),
    }
}

#[cfg(test)]
mod tests;
