//! Finds the holders of the other ends: processes whose `/proc/PID/fd` shows them.
//!
//! Reading the descriptors of every process is the expensive part of a scan (4 us each). Most servers are held by an
//! ancestor that is no suspect, and then the search can stop. Only if that fails, all processes are searched.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::facts::{OtherEnd, Unread, Why};
use super::place;
use leash_model::identity::Identity;
use leash_tree::platform::proc::Proc;

/// The end that is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// The writing end of a pipe.
    Writing(u64),
    /// The reading end of a pipe.
    Reading(u64),
    /// A socket.
    Socket(u64),
}

/// A process to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) id: Identity,
    /// The state letter: it decides which /proc directory shows its descriptors.
    pub(super) state: char,
}

/// One search for all ends.
pub(super) struct Search<'a> {
    proc: &'a Proc,
    wanted: HashMap<End, Vec<Identity>>,
    looked: HashSet<i32>,
    /// Processes that may be orphans themselves: if one of them holds an end, the search continues.
    suspects: &'a HashSet<i32>,
    complete: bool,
    pub(super) unread: Vec<Unread>,
}

impl<'a> Search<'a> {
    pub(super) fn new(proc: &'a Proc, wanted: impl Iterator<Item = End>, suspects: &'a HashSet<i32>) -> Search<'a> {
        let wanted = wanted.map(|end| (end, Vec::new())).collect();
        Search { proc, wanted, looked: HashSet::new(), suspects, complete: false, unread: Vec::new() }
    }

    /// True if each end has a holder that is no suspect.
    fn is_answered(&self) -> bool {
        let answers = |holders: &Vec<Identity>| holders.iter().any(|id| !self.suspects.contains(&id.pid));
        self.wanted.values().all(answers)
    }

    /// Searches the probable holders first, and all others only if an end has no answer.
    pub(super) fn run(&mut self, near: impl Iterator<Item = Seen>, all: impl Iterator<Item = Seen>) {
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
    pub(super) fn answer(&self, end: End) -> OtherEnd {
        match self.wanted.get(&end) {
            Some(by) if !by.is_empty() => OtherEnd::Held { by: by.clone(), all: self.complete },
            _ => OtherEnd::NotVisible(Why::Unseen),
        }
    }

    fn look(&mut self, seen: Seen) {
        if !self.looked.insert(seen.id.pid) {
            return;
        }
        let fds = match open_fds(&place::of(seen.id.pid, seen.state)) {
            Ok(fds) => fds,
            // It has exited, so it holds nothing now.
            Err(Errno::NOENT | Errno::SRCH) => return,
            Err(Errno::ACCESS | Errno::PERM) => return self.note(seen, Why::NotPermitted),
            Err(_) => return self.note(seen, Why::Exhausted),
        };
        let mut space = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(&fds, &mut space);
        let mut found: Vec<End> = Vec::new();
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => found.extend(self.ends(&fds, entry.file_name())),
                Err(Errno::NOENT | Errno::SRCH) => break,
                Err(_) => return self.note(seen, Why::Exhausted),
            }
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

    fn note(&mut self, seen: Seen, why: Why) {
        self.unread.push(Unread { id: seen.id, why });
    }

    /// The searched ends that a descriptor is.
    fn ends(&self, fds: &OwnedFd, name: &CStr) -> Vec<End> {
        match link(fds, name) {
            Some(Link::Socket(inode)) => {
                let end = End::Socket(inode);
                if self.wanted.contains_key(&end) { vec![end] } else { Vec::new() }
            }
            Some(Link::Pipe(inode)) => {
                let mut ends = [End::Writing(inode), End::Reading(inode)].to_vec();
                ends.retain(|end| self.wanted.contains_key(end));
                if !ends.is_empty() {
                    let (reads, writes) = access(fds, name);
                    ends.retain(|end| if matches!(end, End::Writing(_)) { writes } else { reads });
                }
                ends
            }
            None => Vec::new(),
        }
    }
}

/// A descriptor that has another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Pipe(u64),
    Socket(u64),
}

/// Opens the descriptor table of a process. It stays with that process, even if its PID is reused.
pub(super) fn open_fds(place: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, format!("{place}/fd"), flags, Mode::empty())
}

/// The pipe or socket that a descriptor is.
pub(super) fn link(fds: &OwnedFd, name: &CStr) -> Option<Link> {
    // Longer links are cut off; they are neither a pipe nor a socket.
    let mut space = [MaybeUninit::uninit(); 40];
    let (link, _) = rustix::fs::readlinkat_raw(fds, name, &mut space).ok()?;
    Link::parse(link)
}

impl Link {
    /// Reads `pipe:[N]` and `socket:[N]`.
    pub(super) fn parse(link: &[u8]) -> Option<Link> {
        let number = |prefix: &[u8]| {
            let number = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
            std::str::from_utf8(number).ok()?.parse().ok()
        };
        number(b"pipe:[").map(Link::Pipe).or_else(|| number(b"socket:[").map(Link::Socket))
    }
}

/// Tells whether a descriptor reads and writes: the kernel shows it as the mode of the link. If the mode can't be
/// read, both are assumed.
fn access(fds: &OwnedFd, name: &CStr) -> (bool, bool) {
    match rustix::fs::statat(fds, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => (stat.st_mode & 0o400 != 0, stat.st_mode & 0o200 != 0),
        Err(_) => (true, true),
    }
}
