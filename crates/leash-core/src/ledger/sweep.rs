//! The sweep: what a run left behind when leash and keeper were both killed is ended by the next start of leash.
//!
//! Only what can be proved to belong to the run is touched: members of its leaf; recorded processes whose boot, start time
//! and pidfs inode still agree; their descendants; and whoever shares a session with such a process. The last is proof too: the
//! keeper and every `setsid` in the tree opened a new session, and a session's number cannot be given out again while one
//! member lives, so everybody in it came out of the tree.

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid};

use super::receipt::{self, EndedBy, Fate, How, LeftOver, Reason, Receipt, TreeEnd};
use super::record::Record;
use super::store::{Entry, Store};
use crate::clock::{Moment, timeout_until};
use crate::limits;
use crate::tree::captive::left_over;
use crate::tree::contain::Containment;
use crate::tree::contain::leaf::Leaf;
use crate::tree::identity::Held;
use crate::tree::proc::{Proc, Stat};

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Receipts of the runs that were ended.
    pub receipts: Vec<Receipt>,
    /// What could not be written, and why; never a reason to stop.
    pub warnings: Vec<String>,
}

/// A run that nobody looks after.
struct Abandoned {
    entry: Entry,
    record: Record,
    leaf: Option<Leaf>,
    /// The most members met at once.
    seen: usize,
    how: How,
}

/// Ends what dead runs left, writes their receipts and removes their records. Cheap when there is nothing to do. Without our
/// own /proc nothing can be proved, and everything is left to a leash that can. Receipts go where each run was told to write
/// its own: there, and only there, can be seen whether it already did.
pub fn sweep(store: &Store, proc: Option<&Proc>) -> Swept {
    let mut swept = Swept::default();
    let Some(proc) = proc else { return swept };
    let began = Moment::now();
    let mut abandoned = match seize_all(store) {
        Ok(abandoned) => abandoned,
        Err(error) => {
            swept.warnings.push(format!("cannot read the ledger: {error}"));
            return swept;
        }
    };
    if abandoned.is_empty() {
        return swept;
    }
    end_all(&mut abandoned, proc);
    for run in abandoned {
        let end = Ending { reason: Reason::Swept, by: EndedBy::Sweep, took: Moment::now().since(began) };
        let (receipt, warning) = run.finish(proc, end);
        swept.warnings.extend(warning);
        swept.receipts.push(receipt);
    }
    swept
}

/// What a receipt says beside what is found.
struct Ending {
    reason: Reason,
    by: EndedBy,
    took: Duration,
}

/// Ends one run whose keeper is gone, by what can be proved alone: for a supervisor that has children of its own among those
/// that the keeper left to it.
pub(crate) fn end_run(entry: Entry, record: Record, proc: &Proc, reason: Reason) -> (Receipt, Option<String>) {
    let began = Moment::now();
    let mut run = [Abandoned::new(entry, record)];
    end_all(&mut run, proc);
    let [run] = run;
    run.finish(proc, Ending { reason, by: EndedBy::Supervisor, took: Moment::now().since(began) })
}

fn seize_all(store: &Store) -> std::io::Result<Vec<Abandoned>> {
    let mut abandoned = Vec::new();
    for found in store.list()? {
        if found.record.is_some_and(|record| record.of_this_boot() && !record.of_this_place()) {
            // It lives, or died, in another PID namespace; there is nothing that we could know of it.
            continue;
        }
        let Some(entry) = store.seize(&found.run) else { continue };
        // Read again: it may have changed before the lock was ours.
        match entry.read() {
            Some(record) => abandoned.push(Abandoned::new(entry, record)),
            // Torn, empty, or a lock alone: it was written before anything existed, or names nobody that can be known.
            None => entry.remove(),
        }
    }
    Ok(abandoned)
}

/// The ladder for all of them at once: SIGTERM, grace, SIGKILL until nobody is left.
fn end_all(abandoned: &mut [Abandoned], proc: &Proc) {
    let graces = abandoned.iter().filter(|run| run.record.over.is_none()).map(|run| run.record.grace_ms);
    let grace = Duration::from_millis(graces.max().unwrap_or_default()).min(limits::SWEEP_GRACE);
    let began = Moment::now();
    signal_all(abandoned, proc, Signal::TERM, How::Term);
    while Moment::now().since(began) < grace && wait_for_one(abandoned, proc) {}
    while Moment::now().since(began) < grace + limits::GIVE_UP && signal_all(abandoned, proc, Signal::KILL, How::Kill) {
        wait_for_one(abandoned, proc);
    }
}

/// Signals every survivor; whether a signal could be sent to any.
fn signal_all(abandoned: &mut [Abandoned], proc: &Proc, signal: Signal, how: How) -> bool {
    let mut reached = false;
    for run in abandoned.iter_mut().filter(|run| run.record.over.is_none()) {
        let survivors = run.survivors(proc);
        let populated = run.leaf.as_ref().is_some_and(Leaf::populated);
        if survivors.is_empty() && !populated {
            continue;
        }
        run.seen = run.seen.max(survivors.len());
        run.how = how;
        if let Some(leaf) = run.leaf.as_ref().filter(|_| signal == Signal::KILL) {
            for pid in leaf.procs().found.into_iter().filter(|pid| run.spared(proc, *pid)) {
                let _ = leaf.release(pid);
            }
            reached |= leaf.kill().is_ok();
        }
        for survivor in &survivors {
            reached |= survivor.signal(signal) != Err(Errno::PERM);
            if signal == Signal::TERM {
                let _ = survivor.signal(Signal::CONT);
            }
        }
    }
    reached
}

/// Waits a moment, or until one of the survivors has died; whether there are any.
fn wait_for_one(abandoned: &[Abandoned], proc: &Proc) -> bool {
    let survivors: Vec<Held> = abandoned.iter().flat_map(|run| run.survivors(proc)).collect();
    let populated = abandoned.iter().any(|run| run.leaf.as_ref().is_some_and(Leaf::populated));
    if survivors.is_empty() && !populated {
        return false;
    }
    let mut fds: Vec<PollFd<'_>> =
        survivors.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
    let now = Moment::now();
    let _ = rustix::event::poll(&mut fds, Some(&timeout_until(now + limits::SWEEP_ROUND, now)));
    true
}

impl Abandoned {
    fn new(entry: Entry, record: Record) -> Abandoned {
        let dir = record.leaf.as_deref().filter(|_| record.of_this_place());
        let leaf = dir.and_then(|dir| Leaf::open(dir).ok());
        Abandoned { entry, record, leaf, seen: 0, how: How::Exited }
    }

    /// Everybody who is proved to belong to the run and is still alive.
    fn survivors(&self, proc: &Proc) -> Vec<Held> {
        if !self.record.of_this_place() {
            return Vec::new();
        }
        let recorded = self.record.members.iter().chain(&self.record.leader);
        let opened = recorded.filter_map(|id| Held::open_same(proc, *id));
        let proved: Vec<Held> = opened.filter(|held| !held.stat.dead()).collect();
        let in_leaf: HashSet<i32> = self.leaf.iter().flat_map(|leaf| leaf.procs().found).collect();
        if proved.is_empty() && in_leaf.is_empty() {
            return Vec::new();
        }
        let all = proc.all().found;
        // A seed counts if it was there before the scan and is there after it: then its number was its own all the time.
        let seeds = proved.iter().filter(|held| held.lives()).map(|held| &held.stat);
        let family = closure(&all, seeds, &in_leaf);
        let same = |stat: Stat| Held::open(proc, stat.pid).filter(|held| held.id.start == stat.start);
        family.into_iter().filter_map(same).filter(|held| !self.spared(proc, held.id.pid)).collect()
    }

    fn spared(&self, proc: &Proc, pid: i32) -> bool {
        let leads = self.record.leader.is_some_and(|leader| leader.pid == pid);
        !self.record.spare.is_empty() && !leads && proc.names(pid).iter().any(|name| self.record.spare.contains(name))
    }

    /// Whether an empty list of survivors proves that nobody is left: by membership, by the namespace that died with its
    /// keeper, or by a reboot. Descent alone was lost with the keeper.
    fn provable(&self) -> bool {
        let strong = [Containment::Leaf, Containment::Unit, Containment::Sealed];
        self.record.containment.is_some_and(|containment| strong.contains(&containment)) || !self.record.of_this_boot()
    }

    /// Writes the receipt, also into the record first: whoever finds it there must not write another.
    fn finish(mut self, proc: &Proc, end: Ending) -> (Receipt, Option<String>) {
        let receipt = self.record.over.take().unwrap_or_else(|| self.receipt(proc, end));
        self.record.over = Some(receipt.clone());
        // A full disk is told by the write of the receipt itself.
        let _ = self.entry.write(&self.record);
        let path = self.record.receipts;
        let written = receipt::append_once(&path, &receipt);
        if !written.as_ref().is_err_and(receipt::is_shortage) {
            self.entry.remove();
        }
        (receipt, written.err().map(|error| format!("cannot write {}: {error}", path.display())))
    }

    fn receipt(&self, proc: &Proc, end: Ending) -> Receipt {
        let survivors = self.survivors(proc);
        let populated = self.leaf.as_ref().is_some_and(Leaf::populated);
        let mut left: Vec<LeftOver> = survivors.iter().map(|held| why_left(proc, held)).collect();
        if left.is_empty() && !self.provable() {
            let why = "all that was recorded is gone; what was started since the last look at the tree can't be known";
            left.push(LeftOver { pid: 0, name: String::new(), why: why.to_owned() });
        }
        let tree = TreeEnd {
            fate: if left.is_empty() && !populated { Fate::Gone } else { Fate::Left },
            members: self.seen,
            left,
            ..self.record.tree_end(self.how)
        };
        if let Some(leaf) = self.leaf.as_ref().filter(|_| !populated) {
            leaf.remove();
        }
        let took_ms = u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX);
        self.record.receipt(end.reason, end.by, took_ms, tree)
    }
}

fn why_left(proc: &Proc, held: &Held) -> LeftOver {
    let denied = held.signal(Signal::KILL) == Err(Errno::PERM);
    left_over(proc, held.id.pid, if denied { "it belongs to another user (EPERM)" } else { "it did not go in time" })
}

/// All processes that are proved to be of the family: the seeds, the members of the leaf, and by descent and shared session
/// whoever belongs to one of them.
fn closure<'a>(all: &[Stat], seeds: impl Iterator<Item = &'a Stat>, in_leaf: &HashSet<i32>) -> Vec<Stat> {
    let me = getpid().as_raw_pid();
    let own_session = all.iter().find(|stat| stat.pid == me).map_or(0, |stat| stat.session);
    let seeds: HashSet<(i32, u64)> = seeds.map(|stat| (stat.pid, stat.start)).collect();
    let seeded = all.iter().filter(|stat| seeds.contains(&(stat.pid, stat.start))).map(|stat| stat.pid);
    let mut family: HashSet<i32> = seeded.chain(in_leaf.iter().copied()).collect();
    loop {
        let sessions: HashSet<i32> = all
            .iter()
            .filter(|stat| family.contains(&stat.pid))
            .map(|stat| stat.session)
            .filter(|session| *session > 1 && *session != own_session)
            .collect();
        let before = family.len();
        let joins = |stat: &&Stat| family.contains(&stat.ppid) || sessions.contains(&stat.session);
        let joined: Vec<i32> = all.iter().filter(joins).map(|stat| stat.pid).collect();
        family.extend(joined);
        if family.len() == before {
            break;
        }
    }
    family.remove(&me);
    all.iter().filter(|stat| family.contains(&stat.pid) && !stat.dead()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, ppid: i32, session: i32) -> Stat {
        Stat { pid, comm: String::new(), state: 'S', ppid, pgrp: session, session, threads: 1, start: 0 }
    }

    fn check(all: &[Stat], seeds: &[i32], leaf: &[i32], family: &[i32]) {
        let seeds: Vec<&Stat> = all.iter().filter(|stat| seeds.contains(&stat.pid)).collect();
        let mut found: Vec<i32> =
            closure(all, seeds.into_iter(), &leaf.iter().copied().collect()).iter().map(|stat| stat.pid).collect();
        found.sort_unstable();
        assert_eq!(found, family);
    }

    #[test]
    fn family_is_descent_session_and_leaf() {
        let all = [
            process(100, 1, 90),    // a recorded helper
            process(101, 100, 90),  // its child
            process(102, 101, 102), // which opened a session
            process(103, 1, 102),   // whose member was reparented
            process(104, 1, 90),    // somebody in the keeper's session that was never recorded
            process(200, 1, 200),   // a stranger
            process(201, 200, 200),
            process(300, 1, 300), // in the leaf only
        ];
        check(&all, &[100], &[], &[100, 101, 102, 103, 104]);
        check(&all, &[100], &[300], &[100, 101, 102, 103, 104, 300]);
        check(&all, &[], &[], &[]);
    }

    #[test]
    fn zombies_are_not_survivors() {
        let mut all = [process(100, 1, 90), process(101, 100, 90)];
        all[1].state = 'Z';
        check(&all, &[100], &[], &[100]);
        all[1].threads = 2;
        check(&all, &[100], &[], &[100, 101]);
    }
}
