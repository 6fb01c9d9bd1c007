//! What is remembered from look to look of those who are no concern of ours, so that they need not be read again.
//!
//! The kernel keeps one entry in /proc for a process as long as that lives: while number and making of the entry are the same, it is
//! the same process, and asking for them takes 2 us instead of the 17 us for its files. (When memory is short the kernel may make the
//! entry anew; then the process is read again.) What an entry does not show is an `exec` or a new title. So nobody is remembered who
//! is young, who is near a server or a host, or for longer than some looks; and whoever turns out to be near one is read again before
//! anything is decided. A server that is taken for a stranger is found a few looks later, and nobody is ended for it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::facts::{Facts, Process};
use crate::knowledge::Knowledge;

/// After how many looks everybody is read again.
pub(super) const LOOKS: u32 = 10;

/// Younger processes may still become something else.
const GROWN: Duration = Duration::from_secs(10);

/// The kernel's entry for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) inode: u64,
    pub(super) made: (i64, u32),
}

/// One of them, by the facts that say whether it is near anybody.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    node: Node,
    start: u64,
    pid: i32,
    ppid: i32,
    pgrp: i32,
    session: i32,
    uid: u32,
}

/// The memory of earlier looks.
#[derive(Debug)]
pub struct Strangers {
    /// By number.
    known: Vec<Stranger>,
    /// Threads of the kernel, by number.
    kernel: Vec<(i32, Node)>,
    /// How many looks ago everybody was read.
    looks: u32,
    /// What was declared when they were found to be nobody.
    declared: u64,
    /// See [`GROWN`].
    pub(super) grown: Duration,
}

impl Default for Strangers {
    fn default() -> Strangers {
        Strangers { known: Vec::new(), kernel: Vec::new(), looks: 0, declared: 0, grown: GROWN }
    }
}

impl Strangers {
    /// A look begins.
    pub(super) fn begin(&mut self, knowledge: &Knowledge) {
        let mut hasher = DefaultHasher::new();
        knowledge.declared.iter().for_each(|declared| declared.command.hash(&mut hasher));
        let declared = hasher.finish();
        self.looks += 1;
        if self.looks >= LOOKS || declared != self.declared {
            *self = Strangers { declared, grown: self.grown, ..Strangers::default() };
        }
    }

    /// Whether this is a thread of the kernel.
    pub(super) fn is_kernel(&self, pid: i32, node: &Node) -> bool {
        self.kernel.binary_search_by_key(&pid, |(pid, _)| *pid).is_ok_and(|at| self.kernel[at].1 == *node)
    }

    /// Who it is, if it is still the same.
    pub(super) fn find(&self, pid: i32, node: &Node) -> Option<Process> {
        let at = self.known.binary_search_by_key(&pid, |stranger| stranger.pid).ok()?;
        Some(&self.known[at]).filter(|stranger| stranger.node == *node).map(Stranger::process)
    }

    /// A look has ended: these are nobody. Both come in the order of their numbers.
    pub(super) fn end<'a>(
        &mut self,
        facts: &Facts,
        nobody: impl Iterator<Item = (&'a Process, Node)>,
        kernel: Vec<(i32, Node)>,
    ) {
        let grown = nobody.filter(|(process, _)| process.age(facts) >= self.grown);
        self.known = grown.map(|(process, node)| Stranger::of(process, node)).collect();
        self.known.shrink_to_fit();
        self.kernel = kernel;
    }
}

impl Stranger {
    fn of(process: &Process, node: Node) -> Stranger {
        Stranger {
            node,
            start: process.id.start,
            pid: process.id.pid,
            ppid: process.ppid,
            pgrp: process.pgrp,
            session: process.session,
            uid: process.uid,
        }
    }

    fn process(&self) -> Process {
        let mut process = Process::nobody(self.pid, self.start);
        process.ppid = self.ppid;
        process.pgrp = self.pgrp;
        process.session = self.session;
        process.uid = self.uid;
        process
    }
}
