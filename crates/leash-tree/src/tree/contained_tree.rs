//! A tree as its holder sees it: its members, and functions to signal and reap them. The holder is the keeper, or the
//! supervisor once the keeper is gone. All members are then its own adopted children.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid};

use super::strays;
use crate::contain::leaf::Leaf;
use crate::contain::sealed::Sealed;
use crate::contain::slice::BudgetSlice;
use crate::platform::identity::{self, HeldProcess, number_has_ended};
use crate::platform::linux;
use crate::platform::proc::{Proc, ProcessList, Stat};
use leash_model::containment::Containment;
use leash_model::identity::Identity;
use leash_model::receipt::{Exit, LeftOver};

/// A tree that this process holds.
#[derive(Debug)]
pub(crate) struct ContainedTree {
    /// Its containment.
    pub(crate) containment: Containment,
    /// Its first process, by our number for it; `None` if it can't be known (sealed, without our own /proc).
    pub(crate) leader: Option<i32>,
    pub(crate) leaf: Option<Leaf>,
    /// The slices around it that have a budget, innermost first. A supervisor that took over does not need them: the tree
    /// is ending.
    pub(crate) slices: Vec<BudgetSlice>,
    pub(crate) sealed: Option<Sealed>,
    /// /proc, if it belongs to our PID namespace.
    pub(crate) proc: Option<Proc>,
    /// Names of processes that leash does not end.
    pub(crate) spare: Vec<String>,
    /// The leader's exit, once it has ended.
    pub(crate) exit: Option<Exit>,
    /// True once the group is killed, or has no member but its dead leader. Before that leash does not reap the leader
    /// in `group`: its number keeps the group's number from being reused.
    pub(crate) group_killed: bool,
    /// Children that were sent SIGKILL and have not been reaped. One SIGKILL is enough. A further one each time a
    /// sibling dies would make the kill of a large tree quadratic.
    pub(crate) sigkilled: HashSet<i32>,
    /// leash is the first process of its PID namespace: it may end every other process in it.
    pub(crate) pid_one: bool,
    /// PID namespaces that members were seen to enter.
    pub(crate) entered: BTreeSet<u64>,
    /// Children of ours that are the keepers of other trees. They and all processes below them are not members.
    pub(crate) others: HashSet<i32>,
}

/// The result of one look at all members.
#[derive(Debug)]
pub(crate) struct MemberCount {
    pub(crate) members: Vec<Identity>,
    /// The private memory of all members together.
    pub(crate) memory_bytes: u64,
    /// True if leash could look at every member.
    pub(crate) complete: bool,
}

/// The number of looks that must agree that only spared processes are left.
const LOOKS: usize = 3;

/// The result of reaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// No child of ours is left, and no member of the leaf.
    Nothing,
    /// Only processes on the spare list are left.
    Spared,
    /// At least one member is left.
    Members,
}

impl ContainedTree {
    /// A tree without any started or found process.
    pub(crate) fn new(
        containment: Containment,
        proc: Option<Proc>,
        spare: Vec<String>,
        pid_one: bool,
    ) -> ContainedTree {
        ContainedTree {
            containment,
            leader: None,
            leaf: None,
            slices: Vec::new(),
            sealed: None,
            proc,
            spare,
            exit: None,
            group_killed: false,
            sigkilled: HashSet::new(),
            pid_one,
            entered: BTreeSet::new(),
            others: HashSet::new(),
        }
    }

    /// Reaps all dead children, and returns what remains.
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
            match self.wait() {
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

    /// Reaps a dead child; `Ok(None)` if all of them live, ECHILD if there is none. The keepers of other trees do not count:
    /// their own trees need them.
    fn wait(&self) -> rustix::io::Result<Option<(Pid, WaitStatus)>> {
        let Some(proc) = self.proc.filter(|_| !self.others.is_empty()) else {
            return rustix::process::wait(WaitOptions::NOHANG);
        };
        let mut is_listed = false;
        for _ in 0..LOOKS {
            let listed = proc.children(getpid().as_raw_pid());
            is_listed |= !listed.complete;
            for child in listed.found.into_iter().filter(|child| !self.others.contains(child)) {
                is_listed = true;
                // An error: a tracer holds the dead child, and alone can reap it.
                if let Ok(Some(dead)) = rustix::process::waitpid(Pid::from_raw(child), WaitOptions::NOHANG) {
                    return Ok(Some(dead));
                }
            }
            if is_listed {
                return Ok(None);
            }
        }
        Err(Errno::CHILD)
    }

    /// All descendants of ours, without the other trees.
    pub(crate) fn below(&self, proc: &Proc) -> ProcessList<i32> {
        proc.descendants_without(getpid().as_raw_pid(), &self.others)
    }

    /// True if every process that is left is on the spare list, or is dead and held by a tracer, which alone can reap
    /// it. One look could miss a process whose parent dies during the look. So several looks must agree, without a
    /// death in between: a process that hops from fork to fork leaves a dead parent to us each time.
    fn only_settled_left(&mut self) -> bool {
        let Some(proc) = self.proc else { return false };
        for _ in 0..LOOKS {
            if !self.looks_settled(&proc) {
                return false;
            }
            match self.wait() {
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

    /// One look at all of them: each of our children and each member of the leaf is spared, comes from a spared
    /// process, or has ended. False if a process cannot be listed or looked at.
    fn looks_settled(&self, proc: &Proc) -> bool {
        let family = self.spared_family(proc);
        let all_settled = |listed: &ProcessList<i32>| {
            listed.complete && listed.found.iter().all(|pid| family.contains(pid) || number_has_ended(*pid))
        };
        // Check the children first: as long as one of them lives, which is nearly always, nothing else needs to be
        // read.
        let mut children = proc.children(getpid().as_raw_pid());
        children.found.retain(|child| !self.others.contains(child));
        all_settled(&children) && all_settled(&self.in_leaf()) && self.own_strays().proves_none()
    }

    fn in_leaf(&self) -> ProcessList<i32> {
        self.leaf.as_ref().map_or_else(ProcessList::none, Leaf::procs)
    }

    /// The processes on the spare list and all their descendants, as far as we can see them.
    pub(crate) fn spared_family(&self, proc: &Proc) -> HashSet<i32> {
        if self.spare.is_empty() {
            return HashSet::new();
        }
        let all = proc.all().found;
        let members = self.below(proc).found.into_iter().chain(self.in_leaf().found);
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
        // From here on another process may get the number.
        self.sigkilled.remove(&pid);
        if self.sealed.is_none() && Some(pid) == self.leader && self.exit.is_none() {
            self.exit = linux::exit_of(status);
        }
    }

    /// `group`: notes the leader's death without reaping the leader.
    fn reap_group(&mut self) -> Remaining {
        let Some(leader) = self.leader.and_then(Pid::from_raw) else {
            // There is no leader's number to keep. Only the lack of children is a proof.
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
        // The group has no member but its dead leader: its number is not needed any more.
        self.group_killed = true;
        self.reap()
    }

    /// Our direct children, dead ones included, without the spared ones.
    pub(crate) fn own_children(&self) -> Vec<i32> {
        let Some(proc) = self.proc else {
            // Only a child that has not been reaped: after that any process may have the number.
            let known = self.sealed.as_ref().map(|sealed| sealed.init).or(self.leader.filter(|_| self.exit.is_none()));
            return known.into_iter().collect();
        };
        // If some children cannot be listed now, `wait` still reports that they exist.
        let children = proc.children(getpid().as_raw_pid()).found;
        let is_ours = |pid: &i32| !self.others.contains(pid) && !self.spared(&proc, *pid);
        children.into_iter().filter(is_ours).collect()
    }

    /// All members of the tree, as far as they can be held at once.
    pub(crate) fn members(&self) -> Vec<HeldProcess> {
        let mut members = Vec::new();
        self.each_member(|member| members.push(member));
        members
    }

    /// Visits all members of the tree, one at a time, each held by a pidfd and checked to belong to the tree. It does
    /// not visit our own processes inside a sealed namespace, spared processes and dead processes. Returns false if
    /// there may be more members.
    pub(crate) fn each_member(&self, mut visit: impl FnMut(HeldProcess)) -> bool {
        let Some(proc) = self.proc else { return false };
        let me = getpid().as_raw_pid();
        let below = if self.containment == Containment::Group { self.group(&proc) } else { self.below(&proc) };
        let leaf = self.in_leaf();
        let mut complete = below.complete && leaf.complete;
        let mut family: HashSet<i32> = below.found.iter().copied().chain([me]).collect();
        let beside: Vec<i32> = leaf.found.iter().copied().filter(|pid| family.insert(*pid)).collect();
        let in_leaf: HashSet<i32> = leaf.found.into_iter().collect();
        let mut spared: HashSet<i32> = HashSet::new();
        for pid in below.found.into_iter().chain(beside) {
            let held = match HeldProcess::find(&proc, pid) {
                Ok(Some(held)) => held,
                Ok(None) => continue,
                Err(_) => {
                    complete = false;
                    continue;
                }
            };
            // Another process may have got the number since the walk. The process that has it now must still have a
            // parent in the tree, or be in the leaf.
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
    fn group(&self, proc: &Proc) -> ProcessList<i32> {
        let below = self.below(proc);
        let mut group = ProcessList { found: Vec::new(), complete: below.complete };
        for pid in below.found {
            match proc.try_stat(pid) {
                Ok(stat) => group.found.extend(stat.filter(|stat| Some(stat.pgrp) == self.leader).map(|stat| stat.pid)),
                Err(_) => group.complete = false,
            }
        }
        group
    }

    /// Processes that left our descent through a PID namespace and are proved to be ours. In `group` there is none,
    /// because it covers only its process group.
    pub(crate) fn own_strays(&self) -> ProcessList<HeldProcess> {
        let Some(proc) = self.proc.filter(|_| self.containment != Containment::Group) else {
            return ProcessList::none();
        };
        let strays = strays::find(&proc, &self.entered);
        // The receipt reports namespaces that could not be searched. Killing for longer does not make them readable.
        let mut own = ProcessList::none();
        for stray in strays.found.iter().filter(|stray| strays::is_ours(&proc, stray) && !self.spared(&proc, stray.pid))
        {
            match HeldProcess::find(&proc, stray.pid) {
                // Checked again after the pidfd was opened.
                Ok(held) => {
                    own.found.extend(held.filter(|held| strays::is_ours(&proc, &held.stat) && !held.stat.dead()))
                }
                Err(_) => own.complete = false,
            }
        }
        own
    }

    /// Processes that may come from the tree, without proof or disproof. If there is a leaf, membership in it decides.
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

    /// Sends SIGTERM to every member, and SIGCONT so that a stopped one can handle it.
    pub(crate) fn term(&self) {
        if self.proc.is_none() {
            return self.term_unseen();
        }
        self.each_member(|member| {
            // ESRCH: it has just died. EPERM: it changed its user; the kill step will report it.
            let _ = member.signal(Signal::TERM);
            let _ = member.signal(Signal::CONT);
        });
    }

    /// Without our own /proc: the leaf's list is right in any namespace. Without a leaf only the leader's group is
    /// known.
    fn term_unseen(&self) {
        let Some(leaf) = &self.leaf else {
            if let Some(leader) = self.leader {
                let _ = crate::platform::linux::signal_own_group(leader, Signal::TERM.as_raw());
            }
            return;
        };
        for pid in leaf.procs().found {
            let Ok(fd) = crate::platform::identity::pidfd(pid) else { continue };
            // Listed, opened, and listed again: so the process that we opened is a member.
            if leaf.procs().found.contains(&pid) {
                let _ = rustix::process::pidfd_send_signal(&fd, Signal::TERM);
            }
        }
    }

    /// True if a process is on the spare list by name.
    pub(crate) fn spared(&self, proc: &Proc, pid: i32) -> bool {
        // The spare list is for programs that the server starts, not for the server itself.
        !self.spare.is_empty()
            && Some(pid) != self.leader
            && proc.names(pid).iter().any(|name| self.spare.contains(name))
    }

    /// The spared processes that are alive now, and their living descendants.
    pub(crate) fn spared_now(&self) -> Vec<LeftOver> {
        let Some(proc) = self.proc.filter(|_| !self.spare.is_empty()) else { return Vec::new() };
        let mut living: Vec<i32> =
            self.spared_family(&proc).into_iter().filter(|pid| !number_has_ended(*pid)).collect();
        living.sort_unstable();
        let why =
            |pid| if self.spared(&proc, pid) { "on the spare list" } else { "started by a process on the spare list" };
        living.into_iter().map(|pid| left_over(&proc, pid, why(pid))).collect()
    }

    /// The members of the tree, for the ledger. Also notes the PID namespaces that they have entered.
    pub(crate) fn count_members(&mut self) -> MemberCount {
        let mut count = MemberCount { members: Vec::new(), memory_bytes: 0, complete: false };
        let Some(proc) = self.proc else { return count };
        let (ours, mut entered) = (identity::pid_namespace(), self.entered.clone());
        count.complete = self.each_member(|member| {
            strays::observe(&proc, &member.stat, ours, &mut entered);
            count.memory_bytes += proc.private_bytes(member.id.pid);
            count.members.push(member.id);
        });
        self.entered = entered;
        count
    }

    /// Begins the hard kill: kills all members that can be seen. It leaves those that are in another PID namespace or
    /// have entered one, and notes these namespaces. After the death of such a member another process adopts the
    /// processes that it started there, and no look finds those below us.
    pub(crate) fn kill_members(&mut self) {
        let Some(proc) = self.proc else { return };
        // One signal to the whole group is safe against forks in between.
        let kills = self.containment != Containment::Group;
        let (ours, mut entered) = (identity::pid_namespace(), std::mem::take(&mut self.entered));
        self.each_member(|member| {
            if strays::observe(&proc, &member.stat, ours, &mut entered) && kills {
                // ESRCH: it has just died. EPERM: it changed its user, which the rounds of killing report.
                let _ = member.signal(Signal::KILL);
            }
        });
        self.entered = entered;
    }

    /// The descriptors that wake a poll when the tree changes, besides SIGCHLD. The flag is true for a descriptor that
    /// signals by priority data (cgroup events) and not by being readable.
    pub(crate) fn wakers(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        let leaf = self.leaf.iter().flat_map(Leaf::events).map(|events| (events, true));
        let sealed = self.sealed.iter().filter(|_| self.exit.is_none()).map(|sealed| (sealed.status(), false));
        leaf.chain(sealed).collect()
    }
}

/// A process that is left, for the receipt.
pub fn left_over(proc: &Proc, pid: i32, why: &str) -> LeftOver {
    LeftOver { pid, name: proc.stat(pid).map(|stat| stat.comm).unwrap_or_default(), why: why.to_owned() }
}
