//! A tree as its holder sees it: who its members are, how to signal them, how to reap them. The holder is the keeper, or the
//! supervisor once the keeper is gone: then all members are its own adopted children.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid};

use super::contain::Containment;
use super::contain::leaf::Leaf;
use super::contain::sealed::Sealed;
use super::identity::{Held, Identity};
use super::proc::Proc;
use crate::ledger::receipt::{Exit, LeftOver};

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
                Err(Errno::CHILD) if populated => return Remaining::Members,
                Err(Errno::CHILD) => return Remaining::Nothing,
                Ok(None) | Err(_) => break,
            }
        }
        if self.only_spared_left() { Remaining::Spared } else { Remaining::Members }
    }

    /// Whether all that is left is on the spare list. One look could miss a process whose parent dies meanwhile, so it takes
    /// several that agree, with nobody dying in between: whoever hops from fork to fork leaves a dead parent to us each time.
    fn only_spared_left(&mut self) -> bool {
        let Some(proc) = self.proc.filter(|_| !self.spare.is_empty()) else { return false };
        for _ in 0..LOOKS {
            if !self.looks_spared(&proc) {
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

    /// One look at everybody: our living children are spared, and so is everybody in the leaf, or comes from one who is.
    fn looks_spared(&self, proc: &Proc) -> bool {
        let me = getpid().as_raw_pid();
        let all = proc.all();
        let mut spared: HashSet<i32> = HashSet::new();
        for stat in all.iter().filter(|stat| stat.ppid == me && !stat.dead()) {
            if !self.spared(proc, stat.pid) {
                return false;
            }
            spared.insert(stat.pid);
        }
        loop {
            let before = spared.len();
            let below: Vec<i32> = all.iter().filter(|stat| spared.contains(&stat.ppid)).map(|stat| stat.pid).collect();
            spared.extend(below);
            if spared.len() == before {
                break;
            }
        }
        let dead = |pid: &i32| proc.stat(*pid).is_none_or(|stat| stat.dead());
        self.leaf.iter().flat_map(Leaf::procs).all(|pid| spared.contains(&pid) || dead(&pid))
    }

    fn note(&mut self, pid: i32, status: i32) {
        // From here on the number may belong to somebody else.
        self.struck.remove(&pid);
        if self.sealed.is_none() && Some(pid) == self.leader && self.exit.is_none() {
            self.exit = Exit::from_raw(status);
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
        if self.exit.is_none() || self.proc.is_none() || !self.members().is_empty() {
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
        let children = proc.children(getpid().as_raw_pid());
        children.into_iter().filter(|pid| !self.spared(&proc, *pid)).collect()
    }

    /// Everybody in the tree, each held by a pidfd and checked to belong to it. Our own processes inside a sealed
    /// namespace, the spared ones and zombies are not among them.
    pub(crate) fn members(&self) -> Vec<Held> {
        let Some(proc) = self.proc else { return Vec::new() };
        let me = getpid().as_raw_pid();
        let mut pids = if self.containment == Containment::Group { self.group(&proc) } else { proc.descendants(me) };
        if let Some(leaf) = &self.leaf {
            let known: HashSet<i32> = pids.iter().copied().collect();
            pids.extend(leaf.procs().into_iter().filter(|pid| !known.contains(pid)));
        }
        let family: HashSet<i32> = pids.iter().copied().chain([me]).collect();
        let in_leaf: HashSet<i32> = self.leaf.iter().flat_map(Leaf::procs).collect();
        let mut spared: HashSet<i32> = HashSet::new();
        let mut members = Vec::with_capacity(pids.len());
        for pid in pids {
            let Some(held) = Held::open(&proc, pid) else { continue };
            // The number may have changed hands since the walk: whoever has it now must still be of the family.
            if !family.contains(&held.stat.ppid) && !in_leaf.contains(&pid) {
                continue;
            }
            if spared.contains(&held.stat.ppid) || self.spared(&proc, pid) {
                spared.insert(pid);
                continue;
            }
            if !held.stat.dead() && !self.sealed.as_ref().is_some_and(|sealed| sealed.ours(pid)) {
                members.push(held);
            }
        }
        members
    }

    /// `group`: the members of the leader's group among our descendants.
    fn group(&self, proc: &Proc) -> Vec<i32> {
        let inside = |pid: &i32| proc.stat(*pid).is_some_and(|stat| Some(stat.pgrp) == self.leader);
        proc.descendants(getpid().as_raw_pid()).into_iter().filter(inside).collect()
    }

    /// SIGTERM to every member, and SIGCONT so that a stopped one can take it.
    pub(crate) fn term(&self) {
        if self.proc.is_none() {
            return self.term_unseen();
        }
        for member in self.members() {
            // ESRCH: it has just died. EPERM: it became another user; the kill step will report it.
            let _ = member.signal(Signal::TERM);
            let _ = member.signal(Signal::CONT);
        }
    }

    /// Without our own /proc: the leaf's list is right in any namespace, else only the leader's group is known.
    fn term_unseen(&self) {
        let Some(leaf) = &self.leaf else {
            if let Some(leader) = self.leader {
                let _ = super::linux::signal_own_group(leader, Signal::TERM.as_raw());
            }
            return;
        };
        for pid in leaf.procs() {
            let Ok(fd) = super::identity::pidfd(pid) else { continue };
            // Listed, opened, listed again: the one we opened is a member.
            if leaf.procs().contains(&pid) {
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

    /// The spared processes that are alive now.
    pub(crate) fn spared_now(&self) -> Vec<LeftOver> {
        let Some(proc) = self.proc.filter(|_| !self.spare.is_empty()) else { return Vec::new() };
        let spared = proc.descendants(getpid().as_raw_pid()).into_iter().filter(|pid| self.spared(&proc, *pid));
        spared.map(|pid| left_over(&proc, pid, "on the spare list")).collect()
    }

    /// Who is in the tree, for the ledger, and how much private memory they hold together.
    pub(crate) fn census(&self) -> (Vec<Identity>, u64) {
        let Some(proc) = self.proc else { return (Vec::new(), 0) };
        let members = self.members();
        let memory = members.iter().map(|member| proc.private_bytes(member.id.pid)).sum();
        (members.into_iter().map(|member| member.id).collect(), memory)
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
pub(crate) fn left_over(proc: &Proc, pid: i32, why: &str) -> LeftOver {
    LeftOver { pid, name: proc.stat(pid).map(|stat| stat.comm).unwrap_or_default(), why: why.to_owned() }
}
