//! Processes that left our descent through a PID namespace which the tree did not make.
//!
//! A member may enter an existing namespace (`setns`) and fork into it. When that child exits, the kernel gives its
//! children to the namespace's first process, not to us: `wait` returns ECHILD while they live. So the keeper notes the
//! namespaces that members enter. At the end it searches the processes below the first process of each of them for
//! young ones.

use std::collections::{BTreeSet, HashMap};

use rustix::process::getpid;

use crate::platform::proc::{Proc, ProcessList, Stat};

/// Stands for a namespace whose id we may not read.
pub(crate) const UNREADABLE: u64 = 0;

/// Notes the PID namespaces that a member has entered and did not make itself. Returns true if the member and its next
/// children are in `ours`, the namespace of this process. When such a member dies, the kernel gives its children to us.
pub(crate) fn observe(proc: &Proc, member: &Stat, ours: u64, entered: &mut BTreeSet<u64>) -> bool {
    let (own, next) = (proc.namespace(member, "pid"), proc.namespace(member, "pid_for_children"));
    if own == Some(ours) && next == own {
        return true;
    }
    let levels = proc.levels(member.pid);
    if levels.len() > 1 && was_injected(&levels, &proc.levels(member.ppid)) {
        entered.insert(own.unwrap_or(UNREADABLE));
    }
    // It has entered the namespace, and its next child starts there.
    let next = next.filter(|next| own.is_some_and(|own| own != *next));
    entered.extend(next.filter(|next| !has_made(proc, member.pid, *next)));
    false
}

/// True if the first process of `namespace` is a child of `pid`. Then it ends with our descendants.
fn has_made(proc: &Proc, pid: i32, namespace: u64) -> bool {
    let is_first = |child: &Stat| proc.levels(child.pid).last() == Some(&1);
    let inside = |child: &Stat| proc.namespace(child, "pid") == Some(namespace);
    proc.children(pid)
        .found
        .iter()
        .filter_map(|child| proc.stat(*child))
        .any(|child| is_first(&child) && inside(&child))
}

/// True if a process was born in a namespace that its parent is not in, and is not the first process of that namespace.
fn was_injected(levels: &[i32], parent: &[i32]) -> bool {
    levels.len() > parent.len() && levels.last() != Some(&1)
}

/// The living processes that may come from the tree through the namespaces in `entered`, parents before children. These
/// are the processes below a child of such a namespace's first process, if that child is not older than this process.
pub(crate) fn find(proc: &Proc, entered: &BTreeSet<u64>) -> ProcessList<Stat> {
    if entered.is_empty() {
        return ProcessList::none();
    }
    let all = proc.all();
    let me = rustix::process::geteuid().as_raw();
    // A namespace that we may not read could be any of those entered, unless it belongs to another user: members could
    // not enter that one.
    let enterable = |stat: &Stat| match proc.namespace(stat, "pid") {
        Some(id) => entered.contains(&id),
        None => entered.contains(&UNREADABLE) || proc.user(stat.pid) == Some(me),
    };
    let is_first = |stat: &&Stat| {
        let levels = proc.levels(stat.pid);
        levels.len() > 1 && levels.last() == Some(&1) && enterable(stat)
    };
    let firsts: Vec<i32> = all.found.iter().filter(is_first).map(|stat| stat.pid).collect();
    let me = getpid().as_raw_pid();
    let since = all.found.iter().find(|stat| stat.pid == me).map_or(0, |stat| stat.start);
    ProcessList { found: young(&all.found, &firsts, since), complete: all.complete }
}

/// The living processes below `firsts`, in branches whose top process started at `since` or later.
fn young(all: &[Stat], firsts: &[i32], since: u64) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.ppid).or_default().push(stat);
    }
    let below = |pid: i32| children.get(&pid).into_iter().flatten().copied();
    let mut found: Vec<&Stat> =
        firsts.iter().flat_map(|first| below(*first)).filter(|top| top.start >= since).collect();
    let mut next = 0;
    while let Some(stat) = found.get(next) {
        next += 1;
        let more: Vec<&Stat> =
            below(stat.pid).filter(|child| !found.iter().any(|known| known.pid == child.pid)).collect();
        found.extend(more);
    }
    found.into_iter().filter(|stat| !stat.dead()).cloned().collect()
}

/// True if a stray is proved to come from the tree: it is in the session that this process opened, and all members of a
/// session descend from the process that opened it.
pub(crate) fn is_ours(proc: &Proc, stray: &Stat) -> bool {
    let me = getpid().as_raw_pid();
    stray.session == me && proc.stat(me).is_some_and(|own| own.session == me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_born_deeper_than_its_parent_was_injected_unless_it_is_the_first() {
        for (levels, parent, injected) in [
            (&[70, 12][..], &[60][..], true),
            (&[70, 1], &[60], false),
            (&[70, 12], &[60, 1], false),
            (&[70, 12, 5], &[60, 1], true),
            (&[70, 12, 1], &[60, 1], false),
        ] {
            assert_eq!(was_injected(levels, parent), injected, "{levels:?} below {parent:?}");
        }
    }

    fn process(pid: i32, ppid: i32, start: u64) -> Stat {
        Stat { pid, comm: String::new(), state: 'S', ppid, pgrp: 0, session: 0, threads: 1, start, resident_bytes: 0 }
    }

    #[test]
    fn finds_young_processes_below_the_first_process_of_a_namespace() {
        let mut all = vec![
            process(50, 1, 5),    // the first process of the namespace
            process(51, 50, 6),   // an old one in it
            process(52, 51, 99),  // a young child of an old one
            process(60, 50, 100), // a young one
            process(61, 60, 101), // its child
            process(70, 1, 100),  // a young one elsewhere
        ];
        let found = |all: &[Stat]| young(all, &[50], 90).iter().map(|stat| stat.pid).collect::<Vec<_>>();
        assert_eq!(found(&all), [60, 61]);
        all[3].state = 'Z';
        assert_eq!(found(&all), [61]);
        all[3].threads = 2;
        assert_eq!(found(&all), [60, 61], "only its main thread is dead");
    }
}
