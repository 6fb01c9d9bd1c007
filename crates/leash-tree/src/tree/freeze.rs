//! Freezes a tree without privileges, for trees that fork faster than they die.
//!
//! Every process found first gets the lowest priority on one CPU (its forks inherit that), and is then stopped. Groups
//! are stopped first where possible, because that is atomic against fork, then single processes. If two sweeps find no
//! new process, the tree stands still, and the next round of killing works on a set that can only shrink. Without the
//! lower priority a fork bomb of 400 processes leaves the killer one four-hundredth of the CPU.

use std::collections::HashSet;

use rustix::process::{Signal, getpid};

use super::contained_tree::ContainedTree;
use crate::platform::identity::HeldProcess;
use crate::platform::linux;
use leash_model::clock::Moment;
use leash_model::limits;

/// The most sweeps before the killer tries again.
const SWEEPS: usize = 64;

/// Stops every member, as far as possible.
pub(crate) fn freeze(tree: &ContainedTree) {
    let cpu = rustix::thread::sched_getcpu();
    let me = getpid().as_raw_pid();
    let own_group = tree.proc.and_then(|proc| proc.stat(me)).map_or(me, |stat| stat.pgrp);
    let began = Moment::now();
    let mut known = HashSet::new();
    let mut quiet = 0;
    for _ in 0..SWEEPS {
        let new = sweep(tree, cpu, own_group, &mut known);
        quiet = if new == 0 { quiet + 1 } else { 0 };
        if quiet == 2 || Moment::now().since(began) >= limits::GIVE_UP {
            break;
        }
    }
    // A spared process may have been stopped with its group.
    for spared in tree.spared_now() {
        if let Some(held) = tree.proc.and_then(|proc| HeldProcess::open(&proc, spared.pid)) {
            let _ = held.signal(Signal::CONT);
        }
    }
    // Kill all of the stopped members before a parent is asked to reap any of them.
    for member in tree.members() {
        let _ = member.signal(Signal::KILL);
    }
}

/// Demotes and stops every member that is not known yet. Returns their number.
fn sweep(tree: &ContainedTree, cpu: usize, own_group: i32, known: &mut HashSet<(i32, u64)>) -> usize {
    let me = getpid().as_raw_pid();
    let fresh: Vec<HeldProcess> = tree
        .members()
        .into_iter()
        .filter(|member| member.id.pid != me && known.insert((member.id.pid, member.id.start)))
        .collect();
    for member in &fresh {
        linux::demote(member.id.pid, cpu);
        // The keeper opened its own session, so a group in it has only members of the tree. Only the keeper's own group
        // must be left out: stopping it would stop us.
        let leads = member.stat.pgrp == member.id.pid && member.stat.pgrp != own_group;
        if leads {
            let _ = linux::stop_group(rustix::fd::AsFd::as_fd(member));
        }
    }
    for member in &fresh {
        let _ = member.signal(Signal::STOP);
    }
    fresh.len()
}
