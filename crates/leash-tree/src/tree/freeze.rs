//! A freeze without privilege, for trees that fork faster than they die.
//!
//! Every process found is first made the least important of one CPU (its forks inherit that), then stopped: by group where
//! we can, because that is atomic against fork, then one by one. Two sweeps that find nobody new mean that the tree stands
//! still; the next round of killing then meets a set that can only shrink. Without the demotion a bomb of 400 leaves the
//! killer one four-hundredth of the CPU.

use std::collections::HashSet;

use rustix::process::{Signal, getpid};

use super::captive::Captive;
use crate::platform::identity::Held;
use crate::platform::linux;
use leash_model::clock::Moment;
use leash_model::limits;

/// Most sweeps before giving the kill another try.
const SWEEPS: usize = 64;

/// Stops every member, as far as possible.
pub(crate) fn freeze(captive: &Captive) {
    let cpu = rustix::thread::sched_getcpu();
    let me = getpid().as_raw_pid();
    let own_group = captive.proc.and_then(|proc| proc.stat(me)).map_or(me, |stat| stat.pgrp);
    let began = Moment::now();
    let mut known = HashSet::new();
    let mut quiet = 0;
    for _ in 0..SWEEPS {
        let new = sweep(captive, cpu, own_group, &mut known);
        quiet = if new == 0 { quiet + 1 } else { 0 };
        if quiet == 2 || Moment::now().since(began) >= limits::GIVE_UP {
            break;
        }
    }
    // A spared process may have been stopped with its group.
    for spared in captive.spared_now() {
        if let Some(held) = captive.proc.and_then(|proc| Held::open(&proc, spared.pid)) {
            let _ = held.signal(Signal::CONT);
        }
    }
    // Kill them where they stand, all of them, before anybody's parent can be asked to reap.
    for member in captive.members() {
        let _ = member.signal(Signal::KILL);
    }
}

/// Demotes and stops everybody who is not known yet; how many that were.
fn sweep(captive: &Captive, cpu: usize, own_group: i32, known: &mut HashSet<(i32, u64)>) -> usize {
    let me = getpid().as_raw_pid();
    let fresh: Vec<Held> = captive
        .members()
        .into_iter()
        .filter(|member| member.id.pid != me && known.insert((member.id.pid, member.id.start)))
        .collect();
    for member in &fresh {
        linux::demote(member.id.pid, cpu);
        // The keeper opened a session of its own, so a group in here has no members but ours. Only the keeper's own group
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
