//! Finds the holders of the other ends: processes whose `/proc/PID/fd` shows them.
//!
//! Reading the descriptors of every process is the expensive part of a scan (4 us each). Most servers are held by an
//! ancestor that is no suspect, and then the search can stop. Only if that fails, all processes are searched.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;

use rustix::io::Errno;

use crate::facts::{OtherEnd, UnreadProcess, UnreadReason};
use leash_model::identity::Identity;
use leash_tree::platform::descriptors::{Descriptors, Link};
use leash_tree::platform::proc::{self, Proc};

/// The end that is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SearchedEnd {
    /// The writing end of a pipe.
    Writing(u64),
    /// The reading end of a pipe.
    Reading(u64),
    /// A socket.
    Socket(u64),
}

/// A process to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: Identity,
    /// The state letter: it decides which /proc directory shows its descriptors.
    pub(super) state: char,
}

/// One search for all ends.
pub(super) struct HolderSearch<'a> {
    proc: &'a Proc,
    wanted: HashMap<SearchedEnd, Vec<Identity>>,
    looked: HashSet<i32>,
    /// Processes that may be orphans themselves: if one of them holds an end, the search continues.
    suspects: &'a HashSet<i32>,
    complete: bool,
    pub(super) unread: Vec<UnreadProcess>,
}

impl<'a> HolderSearch<'a> {
    pub(super) fn new(
        proc: &'a Proc,
        wanted: impl Iterator<Item = SearchedEnd>,
        suspects: &'a HashSet<i32>,
    ) -> HolderSearch<'a> {
        let wanted = wanted.map(|end| (end, Vec::new())).collect();
        HolderSearch { proc, wanted, looked: HashSet::new(), suspects, complete: false, unread: Vec::new() }
    }

    /// True if each end has a holder that is no suspect.
    fn is_answered(&self) -> bool {
        let answers = |holders: &Vec<Identity>| holders.iter().any(|id| !self.suspects.contains(&id.pid));
        self.wanted.values().all(answers)
    }

    /// Searches the probable holders first, and all others only if an end has no answer.
    pub(super) fn run(&mut self, near: impl Iterator<Item = Candidate>, all: impl Iterator<Item = Candidate>) {
        for seen in near {
            if self.is_answered() {
                return;
            }
            self.look(seen);
        }
        if self.is_answered() {
            return;
        }
        for seen in all {
            self.look(seen);
        }
        self.complete = true;
    }

    /// The holders of this end. The caller knows from the kernel that a holder exists.
    pub(super) fn answer(&self, end: SearchedEnd) -> OtherEnd {
        match self.wanted.get(&end) {
            Some(by) if !by.is_empty() => OtherEnd::Held { by: by.clone(), all: self.complete },
            _ => OtherEnd::NotVisible(UnreadReason::Unseen),
        }
    }

    fn look(&mut self, seen: Candidate) {
        if !self.looked.insert(seen.id.pid) {
            return;
        }
        let fds = match Descriptors::open(proc::directory(seen.id.pid, seen.state)) {
            Ok(fds) => fds,
            // It has exited, so it holds nothing now.
            Err(Errno::NOENT | Errno::SRCH) => return,
            Err(Errno::ACCESS | Errno::PERM) => return self.note(seen, UnreadReason::NotPermitted),
            Err(_) => return self.note(seen, UnreadReason::Exhausted),
        };
        let mut found: Vec<SearchedEnd> = Vec::new();
        if fds.each(|number, link| found.extend(self.ends(&fds, number, link))).is_err() {
            return self.note(seen, UnreadReason::Exhausted);
        }
        if found.is_empty() {
            return;
        }
        // The PID may have been reused since the list of processes was made; record the process that holds the end
        // now.
        let start = self.proc.stat(seen.id.pid).map_or(seen.id.start, |stat| stat.start);
        let id = Identity { pid: seen.id.pid, start, inode: None };
        for end in found {
            let holders = self.wanted.entry(end).or_default();
            if !holders.contains(&id) {
                holders.push(id);
            }
        }
    }

    fn note(&mut self, seen: Candidate, why: UnreadReason) {
        self.unread.push(UnreadProcess { id: seen.id, why });
    }

    /// The searched ends that a descriptor is.
    fn ends(&self, fds: &Descriptors, number: &CStr, link: Option<Link>) -> impl Iterator<Item = SearchedEnd> {
        let is_wanted = |end: &SearchedEnd| self.wanted.contains_key(end);
        let ends = match link {
            Some(Link::Socket(inode)) => [Some(SearchedEnd::Socket(inode)).filter(is_wanted), None],
            Some(Link::Pipe(inode)) => {
                [SearchedEnd::Writing(inode), SearchedEnd::Reading(inode)].map(|end| Some(end).filter(is_wanted))
            }
            None => [None, None],
        };
        // Only a wanted pipe needs a second question to the kernel.
        let is_pipe = ends.iter().flatten().any(|end| !matches!(end, SearchedEnd::Socket(_)));
        let (reads, writes) = if is_pipe { fds.access(number) } else { (true, true) };
        ends.into_iter().flatten().filter(move |end| match end {
            SearchedEnd::Writing(_) => writes,
            SearchedEnd::Reading(_) => reads,
            SearchedEnd::Socket(_) => true,
        })
    }
}
