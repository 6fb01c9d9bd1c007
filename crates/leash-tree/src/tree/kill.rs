//! The hard kill. It kills direct children, reaps them, and repeats until `wait` says that there is none. It also uses
//! the containment's own kill, and freezes trees that fork faster than they die.
//!
//! Why direct children only: a child that we have not waited for keeps its number, so `kill` cannot hit another
//! process, and no scan is needed. Its orphans become our children (we are their subreaper), and the next round kills
//! them. ECHILD is the proof.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use super::contained_tree::{ContainedTree, Remaining, left_over};
use super::freeze;
use crate::ledger::receipts::is_shortage;
use crate::platform::identity::{self, HeldProcess, number_has_ended};
use crate::platform::{linux, poll};
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::Containment;
use leash_model::limits;
use leash_model::receipt::LeftOver;

/// Kills until nothing is left, or until it is clear that some process can't be ended. `signals` is the caller's
/// signalfd, on which SIGCHLD arrives. Other signals that arrive there are dropped: an order to end the tree could not
/// make it faster.
pub(crate) fn kill_until_gone(tree: &mut ContainedTree, signals: BorrowedFd<'_>) -> Result<(), Vec<LeftOver>> {
    if tree.containment == Containment::Group {
        return kill_group(tree);
    }
    let began = Moment::now();
    let mut round = Round::default();
    loop {
        round.kill_children(tree);
        if tree.reap() != Remaining::Members {
            if let Some(leaf) = &tree.leaf {
                leaf.remove();
            }
            return Ok(());
        }
        let spent = Moment::now().since(began);
        let all_forbidden = round.sigkilled == 0 && round.forbidden > 0;
        if spent >= limits::GIVE_UP || (all_forbidden && spent >= limits::GIVE_UP_FORBIDDEN) {
            return Err(describe_left(tree));
        }
        if spent >= limits::HEADLESS {
            kill_headless(tree);
        }
        if spent >= limits::TOP_DOWN && !all_forbidden {
            freeze::freeze(tree);
        }
        wait_for_change(tree, signals);
    }
}

/// The results of one round of killing.
#[derive(Default)]
struct Round {
    sigkilled: usize,
    forbidden: usize,
}

impl Round {
    fn kill_children(&mut self, tree: &mut ContainedTree) {
        *self = Round::default();
        release_spared(tree);
        if let Some(leaf) = &tree.leaf {
            // Fails only if another process removed the leaf; then it has no member left to kill.
            let _ = leaf.kill();
        }
        if tree.pid_one && tree.proc.is_none() {
            // Without our own /proc we can list no process. But in a PID namespace of our own we can kill all others
            // without a list.
            linux::kill_all_in_namespace();
        }
        for child in children(tree) {
            if tree.sigkilled.contains(&child) {
                self.sigkilled += 1;
                continue;
            }
            let killed = linux::kill_own_child(child);
            if killed.is_ok() {
                tree.sigkilled.insert(child);
            }
            self.count(killed);
        }
        for stray in tree.own_strays().found {
            self.count(stray.signal(Signal::KILL));
        }
    }

    fn count(&mut self, killed: Result<(), Errno>) {
        match killed {
            Ok(()) => self.sigkilled += 1,
            Err(Errno::PERM) => self.forbidden += 1,
            Err(_) => {}
        }
    }
}

/// Our direct children. If no descriptor is left to list them with, asks `wait` about each number that a process can
/// have.
fn children(tree: &ContainedTree) -> Vec<i32> {
    /// The kernel's `PID_MAX_LIMIT`. Asking for all numbers takes a second.
    const LAST: i32 = 4 << 20;
    let listed = tree.own_children();
    let is_starved = || File::open("/proc/self/stat").is_err_and(|error| is_shortage(&error));
    // Without a child's name we can't know whether it is on the spare list.
    if !listed.is_empty() || !tree.spare.is_empty() || !is_starved() {
        return listed;
    }
    (2..LAST).filter(|pid| identity::is_own_child(*pid) && !tree.others.contains(pid)).collect()
}

/// Kills processes of the leaf whose main thread is dead while another thread lives. `cgroup.kill` signals main
/// threads, so it does not end such a process (Linux 6.18). A signal through its pidfd kills the whole process.
fn kill_headless(tree: &ContainedTree) {
    let Some((leaf, proc)) = tree.leaf.as_ref().zip(tree.proc) else { return };
    let headless = |pid: i32| proc.stat(pid).is_some_and(|stat| stat.state == 'Z' && !stat.dead());
    for thread in leaf.threads() {
        let Some(pid) = proc.process_of(thread).filter(|pid| headless(*pid) && !tree.spared(&proc, *pid)) else {
            continue;
        };
        let Ok(fd) = crate::platform::identity::pidfd(pid) else { continue };
        // Listed, opened, and listed again: so the process that we opened is a member.
        if proc.process_of(thread) == Some(pid) && leaf.threads().contains(&thread) {
            let _ = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
        }
    }
}

/// Moves the spared processes, and those they started, out of the leaf. `cgroup.kill` knows no exceptions, and the
/// kernel removes no leaf that has members.
pub(crate) fn release_spared(tree: &ContainedTree) {
    if tree.spare.is_empty() {
        return;
    }
    if let Some((leaf, proc)) = tree.leaf.as_ref().zip(tree.proc) {
        let family = tree.spared_family(&proc);
        for pid in leaf.procs().found.into_iter().filter(|pid| family.contains(pid)) {
            let _ = leaf.release(pid);
        }
    }
}

/// Sleeps until a child dies, the leaf empties, or a short time has passed. It never spins: on a machine with few CPUs
/// a spinning killer keeps its victims from exiting.
fn wait_for_change(tree: &ContainedTree, signals: BorrowedFd<'_>) {
    let mut fds = vec![PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    for (fd, by_priority) in tree.wakers() {
        if by_priority {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::PRI));
        }
    }
    let now = Moment::now();
    let timeout = timeout_until(now + limits::KILL_ROUND, now);
    let _ = poll::poll(&mut fds, Some(&timeout));
    while linux::receive(signals).is_some() {}
}

/// The processes that are left, and the reason for each. Never empty: callers ask when something is left, even if it
/// can't be named.
fn describe_left(tree: &ContainedTree) -> Vec<LeftOver> {
    let Some(proc) = tree.proc else {
        return vec![unnamed("processes are left, but we can't see them without our own /proc")];
    };
    let why = |member: &HeldProcess| match (member.signal(Signal::KILL), member.stat.state) {
        (Err(Errno::PERM), _) => "it belongs to another user (EPERM)",
        (_, 'D') => "it waits in the kernel (D state) and can't be killed before that ends",
        _ => "it did not exit in time",
    };
    let mut left = Vec::new();
    if !tree.each_member(|member| left.push(left_over(&proc, member.id.pid, why(&member)))) {
        left.push(unnamed("some processes could not be read, and did not exit in time"));
    }
    if left.is_empty() { vec![unnamed("a process did not exit in time and could not be found")] } else { left }
}

fn unnamed(why: &str) -> LeftOver {
    LeftOver { pid: 0, name: String::new(), why: why.to_owned() }
}

/// `group`: sends one SIGKILL to the group, and reports the processes that it did not reach.
fn kill_group(tree: &mut ContainedTree) -> Result<(), Vec<LeftOver>> {
    if let Some(leader) = tree.leader.filter(|_| !tree.group_killed) {
        // We have not waited for the leader, so the group still has its number.
        let _ = linux::signal_own_group(leader, Signal::KILL.as_raw());
    }
    let began = Moment::now();
    // Reaping notes the leader's end, and that the group is empty. A leader may stay if it belongs to another user or
    // waits in the kernel.
    while !tree.group_killed && Moment::now().since(began) < limits::GIVE_UP_FORBIDDEN {
        tree.reap();
        poll::pause(limits::KILL_ROUND);
        if tree.proc.is_none() && tree.exit.is_some() {
            break;
        }
    }
    tree.group_killed = true;
    match tree.reap() {
        Remaining::Nothing | Remaining::Spared => Ok(()),
        Remaining::Members => Err(escaped(tree)),
    }
}

/// Processes that left the group. `group` promises nothing about them, so the receipt names them. Never empty, as
/// above.
fn escaped(tree: &ContainedTree) -> Vec<LeftOver> {
    let why = "it left the process group, and `group` reaches no further";
    let Some(proc) = tree.proc else { return vec![unnamed(why)] };
    let spared = tree.spared_family(&proc);
    let alive = |pid: &i32| !spared.contains(pid) && !number_has_ended(*pid);
    let found: Vec<LeftOver> =
        tree.below(&proc).found.into_iter().filter(alive).map(|pid| left_over(&proc, pid, why)).collect();
    if found.is_empty() { vec![unnamed(why)] } else { found }
}
