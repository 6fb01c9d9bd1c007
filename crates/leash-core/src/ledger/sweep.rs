//! The sweep: what a run left behind when leash and keeper were both killed is ended by the next start of leash.
//!
//! Only what can be proved to belong to the run is touched: members of its leaf; recorded processes whose boot, start time
//! and pidfs inode still agree; their descendants; and whoever shares a session with such a process. The last is proof too: the
//! keeper and every `setsid` in the tree opened a new session, and a session's number cannot be given out again while one
//! member lives, so everybody in it came out of the tree.

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid};

use super::receipt::{self, EndedBy, Fate, How, Reason, Receipt, TreeEnd};
use super::record::Record;
use super::store::{Entry, Store};
use crate::clock::{Moment, timeout_until};
use crate::limits;
use crate::tree::captive::left_over;
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

/// Ends what dead runs left, writes their receipts and removes their records. Cheap when there is nothing to do.
pub fn sweep(store: &Store, receipts: &Path, proc: Option<&Proc>) -> Swept {
    let mut swept = Swept::default();
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
        let receipt = run.finish(proc, Moment::now().since(began));
        if let Err(error) = receipt::append(receipts, &receipt) {
            swept.warnings.push(format!("cannot write {}: {error}", receipts.display()));
        }
        swept.receipts.push(receipt);
    }
    swept
}

fn seize_all(store: &Store) -> std::io::Result<Vec<Abandoned>> {
    let mut abandoned = Vec::new();
    for found in store.list()? {
        let Some(entry) = store.seize(&found.run) else { continue };
        // Read again: it may have changed before the lock was ours.
        match entry.read() {
            Some(record) => {
                let leaf =
                    record.leaf.as_deref().filter(|_| record.of_this_boot()).and_then(|dir| Leaf::open(dir).ok());
                abandoned.push(Abandoned { entry, record, leaf, seen: 0, how: How::Exited });
            }
            // Torn, empty, or a lock alone: it was written before anything existed, or names nobody that can be known.
            None => entry.remove(),
        }
    }
    Ok(abandoned)
}

/// The ladder for all of them at once: SIGTERM, grace, SIGKILL until nobody is left.
fn end_all(abandoned: &mut [Abandoned], proc: Option<&Proc>) {
    let grace = abandoned.iter().map(|run| Duration::from_millis(run.record.grace_ms)).max().unwrap_or_default();
    let began = Moment::now();
    signal_all(abandoned, proc, Signal::TERM, How::Term);
    while Moment::now().since(began) < grace && wait_for_one(abandoned, proc) {}
    while Moment::now().since(began) < grace + limits::GIVE_UP && signal_all(abandoned, proc, Signal::KILL, How::Kill) {
        wait_for_one(abandoned, proc);
    }
}

/// Signals every survivor; whether a signal could be sent to any.
fn signal_all(abandoned: &mut [Abandoned], proc: Option<&Proc>, signal: Signal, how: How) -> bool {
    let mut reached = false;
    for run in abandoned.iter_mut() {
        let survivors = run.survivors(proc);
        let populated = run.leaf.as_ref().is_some_and(Leaf::populated);
        if survivors.is_empty() && !populated {
            continue;
        }
        run.seen = run.seen.max(survivors.len());
        run.how = how;
        if let Some(leaf) = run.leaf.as_ref().filter(|_| signal == Signal::KILL) {
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
fn wait_for_one(abandoned: &[Abandoned], proc: Option<&Proc>) -> bool {
    let survivors: Vec<Held> = abandoned.iter().flat_map(|run| run.survivors(proc)).collect();
    let populated = abandoned.iter().any(|run| run.leaf.as_ref().is_some_and(Leaf::populated));
    if survivors.is_empty() && !populated {
        return false;
    }
    let mut fds: Vec<PollFd<'_>> =
        survivors.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
    let now = Moment::now();
    let _ = rustix::event::poll(&mut fds, Some(&timeout_until(now + limits::KILL_ROUND, now)));
    true
}

impl Abandoned {
    /// Everybody who is proved to belong to the run and is still alive.
    fn survivors(&self, proc: Option<&Proc>) -> Vec<Held> {
        let Some(proc) = proc.filter(|_| self.record.of_this_boot()) else { return Vec::new() };
        let recorded = self.record.members.iter().chain(&self.record.leader);
        let proved: Vec<Held> =
            recorded.filter_map(|id| Held::open_same(proc, *id)).filter(|held| !held.stat.dead()).collect();
        let in_leaf: HashSet<i32> = self.leaf.iter().flat_map(Leaf::procs).collect();
        if proved.is_empty() && in_leaf.is_empty() {
            return Vec::new();
        }
        let family = closure(&proc.all(), proved.iter().map(|held| &held.stat), &in_leaf);
        let opened =
            family.into_iter().filter_map(|stat| Held::open(proc, stat.pid).filter(|held| held.id.start == stat.start));
        opened.filter(|held| !self.spared(proc, held.id.pid)).collect()
    }

    fn spared(&self, proc: &Proc, pid: i32) -> bool {
        !self.record.spare.is_empty() && proc.names(pid).iter().any(|name| self.record.spare.contains(name))
    }

    fn finish(self, proc: Option<&Proc>, took: Duration) -> Receipt {
        let survivors = self.survivors(proc);
        let populated = self.leaf.as_ref().is_some_and(Leaf::populated);
        let left = survivors.iter().zip(proc.into_iter().cycle()).map(|(held, proc)| {
            let denied = held.signal(Signal::KILL) == Err(Errno::PERM);
            left_over(
                proc,
                held.id.pid,
                if denied { "it belongs to another user (EPERM)" } else { "it did not go in time" },
            )
        });
        let tree = TreeEnd {
            fate: if survivors.is_empty() && !populated { Fate::Gone } else { Fate::Left },
            members: self.seen,
            left: left.collect(),
            ..self.record.tree_end(self.how)
        };
        if let Some(leaf) = self.leaf.as_ref().filter(|_| !populated) {
            leaf.remove();
        }
        let receipt = self.record.receipt(
            Reason::Swept,
            EndedBy::Sweep,
            u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            tree,
        );
        self.entry.remove();
        receipt
    }
}

/// All processes that are proved to be of the family: the seeds, the members of the leaf, and by descent and shared session
/// whoever belongs to one of them.
fn closure<'a>(all: &[Stat], seeds: impl Iterator<Item = &'a Stat>, in_leaf: &HashSet<i32>) -> Vec<Stat> {
    let me = getpid().as_raw_pid();
    let own_session = all.iter().find(|stat| stat.pid == me).map_or(0, |stat| stat.session);
    let mut family: HashSet<i32> = seeds.map(|stat| stat.pid).chain(in_leaf.iter().copied()).collect();
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
        Stat { pid, comm: String::new(), state: 'S', ppid, pgrp: session, session, start: 0 }
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
    }
}
