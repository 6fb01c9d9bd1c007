//! Finds processes that leave a tree while it is being ended. No containment holds the servers of other programs: a
//! server that receives SIGTERM may fork and exit, and the new process is no longer its child. A fork keeps the
//! session, the process group, stdin and stdout. If only members of the tree had one of these before the first signal,
//! then only a descendant of the tree can have it afterwards.

use std::collections::BTreeSet;

use crate::facts::is_reaper_name;
use leash_model::identity::Identity;
use leash_tree::platform::descriptors::{Descriptors, Link};
use leash_tree::platform::proc::{self, Proc, Stat, read_small};

/// A process with the properties that show where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessTraits {
    pub(super) pid: i32,
    pub(super) start: u64,
    pub(super) pgrp: i32,
    pub(super) session: i32,
    /// The pipes and sockets that are its stdin and stdout.
    pub(super) channels: Vec<u64>,
    pub(super) cgroup: String,
    pub(super) argv: Vec<String>,
    /// True if its parent is a process that collects orphans.
    pub(super) is_left: bool,
}

/// The relation of a process to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// It comes from the tree.
    Member,
    /// It may come from the tree; the reason.
    Suspect(&'static str),
}

/// The properties that only the processes of one tree have.
#[derive(Debug, Default)]
pub(super) struct TreeTraits {
    sessions: BTreeSet<i32>,
    groups: BTreeSet<i32>,
    channels: BTreeSet<u64>,
    cgroups: BTreeSet<String>,
    commands: BTreeSet<Vec<String>>,
}

impl TreeTraits {
    /// Records the properties that members have and no other process has.
    pub(super) fn learn(&mut self, all: &[ProcessTraits], is_member: impl Fn(&ProcessTraits) -> bool) {
        let (members, others): (Vec<&ProcessTraits>, Vec<&ProcessTraits>) =
            all.iter().partition(|seen| is_member(seen));
        for member in members {
            // 0 and 1 belong to process 1 and to processes outside of our PID namespace.
            if member.session > 1 && others.iter().all(|other| other.session != member.session) {
                self.sessions.insert(member.session);
            }
            if member.pgrp > 1 && others.iter().all(|other| other.pgrp != member.pgrp) {
                self.groups.insert(member.pgrp);
            }
            let is_own = |inode: &&u64| others.iter().all(|other| !other.channels.contains(inode));
            self.channels.extend(member.channels.iter().filter(is_own));
            if !member.cgroup.is_empty() && others.iter().all(|other| other.cgroup != member.cgroup) {
                self.cgroups.insert(member.cgroup.clone());
            }
            if !member.argv.is_empty() {
                self.commands.insert(member.argv.clone());
            }
        }
    }

    /// Decides whether a process comes from the tree. `since` is when the end began, in clock ticks; `taken` returns
    /// true for the PID of a living process that is no member: a session or group with that number is a new one.
    pub(super) fn kinship(&self, seen: &ProcessTraits, since: u64, taken: impl Fn(i32) -> bool) -> Option<Kinship> {
        let inherits = self.sessions.contains(&seen.session) && !taken(seen.session)
            || self.groups.contains(&seen.pgrp) && !taken(seen.pgrp)
            || seen.channels.iter().any(|inode| self.channels.contains(inode));
        if inherits {
            return Some(Kinship::Member);
        }
        // A service manager may have restarted it, so this is no proof.
        if self.cgroups.contains(&seen.cgroup) {
            return Some(Kinship::Suspect("it is in the cgroup that only this server had"));
        }
        let is_copy = seen.is_left && seen.start >= since && self.commands.contains(&seen.argv);
        is_copy.then_some(Kinship::Suspect("it began while the server ended, with the same command"))
    }
}

/// All living processes.
pub(super) fn all_processes(proc: &Proc) -> Vec<ProcessTraits> {
    proc.numbers().found.into_iter().filter_map(|pid| seen(proc, pid)).collect()
}

/// A process as it is now; `None` when it is dead.
pub(super) fn seen(proc: &Proc, pid: i32) -> Option<ProcessTraits> {
    let stat = proc.stat(pid)?;
    let dir = proc::directory(pid, stat.state);
    let is_zombie = stat.state == 'Z' && dir == format!("/proc/{pid}");
    if is_zombie || matches!(stat.state, 'X' | 'x') {
        return None;
    }
    Some(ProcessTraits {
        pid,
        start: stat.start,
        pgrp: stat.pgrp,
        session: stat.session,
        channels: channels(&dir),
        cgroup: cgroup(&dir),
        argv: proc::arguments(&dir),
        is_left: is_left(proc, &stat),
    })
}

impl ProcessTraits {
    pub(super) fn is(&self, id: &Identity) -> bool {
        self.pid == id.pid && self.start == id.start
    }
}

fn is_left(proc: &Proc, stat: &Stat) -> bool {
    stat.ppid == 1 || proc.stat(stat.ppid).is_some_and(|parent| is_reaper_name(&parent.comm))
}

/// The pipes and sockets that are stdin and stdout; none where they may not be read.
fn channels(dir: &str) -> Vec<u64> {
    let Ok(fds) = Descriptors::open(dir) else { return Vec::new() };
    let inode = |name| match fds.link(name)? {
        Link::Pipe(inode) | Link::Socket(inode) => Some(inode),
    };
    [c"0", c"1"].into_iter().filter_map(inode).collect()
}

/// The cgroup of the unified hierarchy; empty for the root cgroup, which proves nothing.
fn cgroup(dir: &str) -> String {
    let text = read_small(format!("{dir}/cgroup")).unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    if path == "/" { String::new() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pid: i32, pgrp: i32, session: i32, channels: &[u64], cgroup: &str) -> ProcessTraits {
        let argv = vec![format!("program-{pid}")];
        ProcessTraits {
            pid,
            start: 5,
            pgrp,
            session,
            channels: channels.to_vec(),
            cgroup: cgroup.to_owned(),
            argv,
            is_left: false,
        }
    }

    /// A tree of 10 and 11 in its own session, and an unrelated process.
    fn traits(other: ProcessTraits) -> TreeTraits {
        let all = [one(10, 10, 10, &[100, 101], "/s"), one(11, 10, 10, &[100], "/s"), other];
        let mut traits = TreeTraits::default();
        traits.learn(&all, |seen| seen.pid < 20);
        traits
    }

    #[test]
    fn a_property_that_only_the_tree_had_proves_kinship() {
        let traits = traits(one(20, 20, 20, &[200], "/t"));
        let cases = [
            (one(30, 30, 10, &[], "/u"), Some(Kinship::Member)),
            (one(30, 10, 30, &[], "/u"), Some(Kinship::Member)),
            (one(30, 30, 30, &[101], "/u"), Some(Kinship::Member)),
            (one(30, 30, 30, &[], "/s"), Some(Kinship::Suspect("it is in the cgroup that only this server had"))),
            (one(30, 20, 20, &[200], "/t"), None),
            (one(30, 30, 30, &[], ""), None),
        ];
        for (seen, expected) in cases {
            assert_eq!(traits.kinship(&seen, 9, |_| false), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_reused_session_or_group_number_proves_nothing() {
        let traits = traits(one(20, 20, 20, &[], ""));
        assert_eq!(traits.kinship(&one(10, 10, 10, &[], ""), 9, |number| number == 10), None);
    }

    #[test]
    fn a_property_shared_with_another_process_proves_nothing() {
        let traits = traits(one(20, 10, 10, &[100, 101], "/s"));
        assert_eq!(traits.kinship(&one(30, 10, 10, &[100, 101], "/s"), 9, |_| false), None);
    }

    #[test]
    fn a_copy_started_during_the_end_is_suspected() {
        let traits = traits(one(20, 20, 20, &[], ""));
        let copy = ProcessTraits { argv: vec!["program-10".to_owned()], is_left: true, ..one(30, 30, 30, &[], "") };
        let why = Kinship::Suspect("it began while the server ended, with the same command");
        assert_eq!(traits.kinship(&ProcessTraits { start: 9, ..copy.clone() }, 9, |_| false), Some(why));
        assert_eq!(
            traits.kinship(&ProcessTraits { start: 8, ..copy.clone() }, 9, |_| false),
            None,
            "it started before the end began"
        );
        assert_eq!(
            traits.kinship(&ProcessTraits { start: 9, is_left: false, ..copy }, 9, |_| false),
            None,
            "its parent does not collect orphans"
        );
    }
}
