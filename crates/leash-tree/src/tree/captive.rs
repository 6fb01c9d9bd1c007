//! A tree as its holder sees it: who its members are, how to signal them, how to reap them. The holder is the keeper, or the
//! supervisor once the keeper is gone: then all members are its own adopted children.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid};

use super::strays;
use crate::contain::leaf::Leaf;
use crate::contain::sealed::Sealed;
use crate::platform::identity::{Held, number_has_ended};
use crate::platform::linux;
use crate::platform::proc::{Listed, Proc, Stat};
use leash_model::containment::Containment;
use leash_model::identity::Identity;
use leash_model::receipt::{Exit, LeftOver};

/// A tree in our hands.
#[derive(Debug)]
pub(crate) struct Captive {
    /// What keeps it together.
    pub(crate) containment: Containment,
    /// Its first process, by our number for it; `None` when it can't be known (sealed, without our own /proc).
    pub(crate) leader: Option<i32>,
    pub(crate) leaf: Option<Leaf>,
    pub(crate) sealed: Option<Sealed>,
    /// /proc, if it is ours to walk.
    pub(crate) proc: Option<Proc>,
    /// Names of processes that are left alone.
    pub(crate) spare: Vec<String>,
    /// How the leader ended, once it has.
    pub(crate) exit: Option<Exit>,
    /// In `group` the leader is not reaped before its group is killed: its number pins the group's. True once that is over.
    pub(crate) group_killed: bool,
    /// Children that were sent SIGKILL and have not been reaped. One is enough, and a further one each time a sibling dies
    /// would make the kill of a large tree quadratic.
    pub(crate) struck: HashSet<i32>,
    /// leash is the first process of its PID namespace: everybody in there is its business.
    pub(crate) pid_one: bool,
    /// PID namespaces that members were seen to enter.
    pub(crate) entered: BTreeSet<u64>,
}

/// What one look at all members found.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) members: Vec<Identity>,
    /// Private memory that they hold together.
    pub(crate) memory_bytes: u64,
    /// Whether every member could be looked at.
    pub(crate) complete: bool,
}

/// How many looks must agree that only spared processes are left.
const LOOKS: usize = 3;

/// What reaping found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// No child of ours is left, and no member of the leaf.
    Nothing,
    /// Only processes on the spare list are left.
    Spared,
    /// Somebody is.
    Members,
}

impl Captive {
    /// A tree of which nothing has been started or found yet.
    pub(crate) fn new(containment: Containment, proc: Option<Proc>, spare: Vec<String>, pid_one: bool) -> Captive {
        Captive {
            containment,
            leader: None,
            leaf: None,
            sealed: None,
            proc,
            spare,
            exit: None,
            group_killed: false,
            struck: HashSet::new(),
            pid_one,
            entered: BTreeSet::new(),
        }
    }

    /// Reaps whatever has died, and says what remains.
    pub(crate) fn reap(&mut self) -> Remaining {
        if self.exit.is_none() {
            self.exit = self.sealed.as_ref().and_then(Sealed::exit);
        }
        if self.containment == Containment::Group && !self.group_killed {
            return self.reap_group();
        }
        // Read in any case: the leaf wakes polls until its state has been read.
        let mut populated = self.leaf.as_ref().is_some_and(Leaf::populated);
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    self.note(pid.as_raw_pid(), status.as_raw());
                    populated = self.leaf.as_ref().is_some_and(Leaf::populated);
                }
                Err(Errno::CHILD) if populated || !self.own_strays().proves_none() => return Remaining::Members,
                Err(Errno::CHILD) => return Remaining::Nothing,
                Ok(None) | Err(_) => break,
            }
        }
        match self.only_settled_left() {
            true if self.spare.is_empty() => Remaining::Nothing,
            true => Remaining::Spared,
            false => Remaining::Members,
        }
    }

    /// Whether all that is left is on the spare list, or is dead and held by a tracer, which alone can reap it. One look could miss a
    /// process whose parent dies meanwhile, so it takes several that agree, without a death in between: a process that hops from
    /// fork to fork leaves a dead parent to us each time.
    fn only_settled_left(&mut self) -> bool {
        let Some(proc) = self.proc else { return false };
        for _ in 0..LOOKS {
            if !self.looks_settled(&proc) {
                return false;
            }
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(None) => {}
                Ok(Some((pid, status))) => {
                    self.note(pid.as_raw_pid(), status.as_raw());
                    return false;
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// One look at all of them: each of our children and each member of the leaf is spared, comes from a spared process, or has
    /// ended. What cannot be listed or looked at may be neither.
    fn looks_settled(&self, proc: &Proc) -> bool {
        let family = self.spared_family(proc);
        let all_settled = |listed: &Listed<i32>| {
            listed.complete && listed.found.iter().all(|pid| family.contains(pid) || number_has_ended(*pid))
        };
        // The children first: as long as one of them lives, which is nearly always, nothing else needs to be read.
        all_settled(&proc.children(getpid().as_raw_pid()))
            && all_settled(&self.in_leaf())
            && self.own_strays().proves_none()
    }

    fn in_leaf(&self) -> Listed<i32> {
        self.leaf.as_ref().map_or_else(Listed::none, Leaf::procs)
    }

    /// The processes on the spare list and all that come from them, as far as they can be seen.
    pub(crate) fn spared_family(&self, proc: &Proc) -> HashSet<i32> {
        if self.spare.is_empty() {
            return HashSet::new();
        }
        let all = proc.all().found;
        let members = proc.descendants(getpid().as_raw_pid()).found.into_iter().chain(self.in_leaf().found);
        let mut family: HashSet<i32> = members.filter(|pid| self.spared(proc, *pid)).collect();
        loop {
            let before = family.len();
            let below: Vec<i32> = all.iter().filter(|stat| family.contains(&stat.ppid)).map(|stat| stat.pid).collect();
            family.extend(below);
            if family.len() == before {
                return family;
            }
        }
    }

    fn note(&mut self, pid: i32, status: i32) {
        // From here on the number may belong to somebody else.
        self.struck.remove(&pid);
        if self.sealed.is_none() && Some(pid) == self.leader && self.exit.is_none() {
            self.exit = linux::exit_of(status);
        }
    }

    /// `group`: the leader's death is only looked at.
    fn reap_group(&mut self) -> Remaining {
        let Some(leader) = self.leader.and_then(Pid::from_raw) else {
            // No number is pinned, and so nothing but the lack of children proves anything.
            self.group_killed = true;
            return self.reap();
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = rustix::process::waitid(WaitId::Pid(leader), look) {
            self.exit = status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal));
        }
        for child in self.own_children() {
            if child != leader.as_raw_pid() {
                let _ = rustix::process::waitpid(Pid::from_raw(child), WaitOptions::NOHANG);
            }
        }
        let mut empty = true;
        let complete = self.each_member(|_| empty = false);
        if self.exit.is_none() || !complete || !empty {
            return Remaining::Members;
        }
        // The group is empty but for its dead leader: its number is not needed any more.
        self.group_killed = true;
        self.reap()
    }

    /// Our direct children, dead ones included, without the spared.
    pub(crate) fn own_children(&self) -> Vec<i32> {
        let Some(proc) = self.proc else {
            // Only who has not been reaped: after that the number may be anybody's.
            let known = self.sealed.as_ref().map(|sealed| sealed.init).or(self.leader.filter(|_| self.exit.is_none()));
            return known.into_iter().collect();
        };
        // Of those that cannot be listed now, `wait` keeps saying that they are there.
        let children = proc.children(getpid().as_raw_pid()).found;
        children.into_iter().filter(|pid| !self.spared(&proc, *pid)).collect()
    }

    /// Everybody in the tree, as far as they can be held at once.
    pub(crate) fn members(&self) -> Vec<Held> {
        let mut members = Vec::new();
        self.each_member(|member| members.push(member));
        members
    }

    /// Visits everybody in the tree, one at a time, each held by a pidfd and checked to belong to it. Our own processes inside a
    /// sealed namespace, the spared ones and the dead are not among them. False when there may be more.
    pub(crate) fn each_member(&self, mut visit: impl FnMut(Held)) -> bool {
        let Some(proc) = self.proc else { return false };
        let me = getpid().as_raw_pid();
        let below = if self.containment == Containment::Group { self.group(&proc) } else { proc.descendants(me) };
        let leaf = self.in_leaf();
        let mut complete = below.complete && leaf.complete;
        let mut family: HashSet<i32> = below.found.iter().copied().chain([me]).collect();
        let beside: Vec<i32> = leaf.found.iter().copied().filter(|pid| family.insert(*pid)).collect();
        let in_leaf: HashSet<i32> = leaf.found.into_iter().collect();
        let mut spared: HashSet<i32> = HashSet::new();
        for pid in below.found.into_iter().chain(beside) {
            let held = match Held::find(&proc, pid) {
                Ok(Some(held)) => held,
                Ok(None) => continue,
                Err(_) => {
                    complete = false;
                    continue;
                }
            };
            // The number may have changed hands since the walk: whoever has it now must still be of the family.
            if !family.contains(&held.stat.ppid) && !in_leaf.contains(&pid) {
                continue;
            }
            if spared.contains(&held.stat.ppid) || self.spared(&proc, pid) {
                spared.insert(pid);
                continue;
            }
            if !held.stat.dead() && !self.sealed.as_ref().is_some_and(|sealed| sealed.ours(pid)) {
                visit(held);
            }
        }
        let strays = self.own_strays();
        complete &= strays.complete;
        strays.found.into_iter().filter(|stray| !family.contains(&stray.id.pid)).for_each(visit);
        complete
    }

    /// `group`: the members of the leader's group among our descendants.
    fn group(&self, proc: &Proc) -> Listed<i32> {
        let below = proc.descendants(getpid().as_raw_pid());
        let mut group = Listed { found: Vec::new(), complete: below.complete };
        for pid in below.found {
            match proc.look(pid) {
                Ok(stat) => group.found.extend(stat.filter(|stat| Some(stat.pgrp) == self.leader).map(|stat| stat.pid)),
                Err(_) => group.complete = false,
            }
        }
        group
    }

    /// Processes that left our descent through a PID namespace and are proved to be ours. `group` reaches no further than its group.
    pub(crate) fn own_strays(&self) -> Listed<Held> {
        let Some(proc) = self.proc.filter(|_| self.containment != Containment::Group) else { return Listed::none() };
        let strays = strays::find(&proc, &self.entered);
        // Namespaces that could not be searched are told at the end; killing longer does not make them readable.
        let mut own = Listed::none();
        for stray in strays.found.iter().filter(|stray| strays::is_ours(&proc, stray) && !self.spared(&proc, stray.pid))
        {
            match Held::find(&proc, stray.pid) {
                // Looked at again after it was held.
                Ok(held) => {
                    own.found.extend(held.filter(|held| strays::is_ours(&proc, &held.stat) && !held.stat.dead()))
                }
                Err(_) => own.complete = false,
            }
        }
        own
    }

    /// Processes that may come out of the tree, which is neither proved nor refuted. Where there is a leaf, membership decides.
    pub(crate) fn unproved(&self) -> Vec<LeftOver> {
        let why = "a member entered its PID namespace, and it may have been started from there";
        let Some(proc) = self.proc.filter(|_| self.leaf.is_none()) else { return Vec::new() };
        let strays = strays::find(&proc, &self.entered);
        let spared = |stray: &&Stat| !self.spared(&proc, stray.pid);
        let mut left: Vec<LeftOver> =
            strays.found.iter().filter(spared).map(|stray| left_over(&proc, stray.pid, why)).collect();
        if !strays.complete {
            let why = "a member entered another PID namespace, which could not be searched";
            left.push(LeftOver { pid: 0, name: String::new(), why: why.to_owned() });
        }
        left
    }

    /// SIGTERM to every member, and SIGCONT so that a stopped one can take it.
    pub(crate) fn term(&self) {
        if self.proc.is_none() {
            return self.term_unseen();
        }
        self.each_member(|member| {
            // ESRCH: it has just died. EPERM: it became another user; the kill step will report it.
            let _ = member.signal(Signal::TERM);
            let _ = member.signal(Signal::CONT);
        });
    }

    /// Without our own /proc: the leaf's list is right in any namespace, else only the leader's group is known.
    fn term_unseen(&self) {
        let Some(leaf) = &self.leaf else {
            if let Some(leader) = self.leader {
                let _ = crate::platform::linux::signal_own_group(leader, Signal::TERM.as_raw());
            }
            return;
        };
        for pid in leaf.procs().found {
            let Ok(fd) = crate::platform::identity::pidfd(pid) else { continue };
            // Listed, opened, listed again: the one we opened is a member.
            if leaf.procs().found.contains(&pid) {
                let _ = rustix::process::pidfd_send_signal(&fd, Signal::TERM);
            }
        }
    }

    /// Whether a process is on the spare list by name.
    pub(crate) fn spared(&self, proc: &Proc, pid: i32) -> bool {
        // The server itself is not what people mean by a program that it starts.
        !self.spare.is_empty()
            && Some(pid) != self.leader
            && proc.names(pid).iter().any(|name| self.spare.contains(name))
    }

    /// The spared processes that are alive now, and those that come from them.
    pub(crate) fn spared_now(&self) -> Vec<LeftOver> {
        let Some(proc) = self.proc.filter(|_| !self.spare.is_empty()) else { return Vec::new() };
        let mut living: Vec<i32> =
            self.spared_family(&proc).into_iter().filter(|pid| !number_has_ended(*pid)).collect();
        living.sort_unstable();
        let why =
            |pid| if self.spared(&proc, pid) { "on the spare list" } else { "started by a process on the spare list" };
        living.into_iter().map(|pid| left_over(&proc, pid, why(pid))).collect()
    }

    /// Who is in the tree, for the ledger. Notes the PID namespaces that they have entered.
    pub(crate) fn census(&mut self) -> Count {
        let mut count = Count { members: Vec::new(), memory_bytes: 0, complete: false };
        let Some(proc) = self.proc else { return count };
        let mut entered = self.entered.clone();
        count.complete = self.each_member(|member| {
            strays::observe(&proc, &member.stat, &mut entered);
            count.memory_bytes += proc.private_bytes(member.id.pid);
            count.members.push(member.id);
        });
        self.entered = entered;
        count
    }

    /// Notes the PID namespaces that members have entered, before they are killed: what they started there is adopted by another
    /// process, and no look finds it below us afterwards.
    pub(crate) fn note_entered(&mut self) {
        let Some(proc) = self.proc else { return };
        let mut entered = std::mem::take(&mut self.entered);
        self.each_member(|member| strays::observe(&proc, &member.stat, &mut entered));
        self.entered = entered;
    }

    /// What wakes a poll when something in the tree changed, beside SIGCHLD: the descriptor, and whether it signals by
    /// priority data (cgroup events) rather than by being readable.
    pub(crate) fn wakers(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        let leaf = self.leaf.iter().filter_map(Leaf::events).map(|events| (events, true));
        let sealed = self.sealed.iter().filter(|_| self.exit.is_none()).map(|sealed| (sealed.status(), false));
        leaf.chain(sealed).collect()
    }
}

/// A process that is still there.
pub fn left_over(proc: &Proc, pid: i32, why: &str) -> LeftOver {
    LeftOver { pid, name: proc.stat(pid).map(|stat| stat.comm).unwrap_or_default(), why: why.to_owned() }
}
