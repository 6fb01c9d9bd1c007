//! Remembers, from scan to scan, processes that are unrelated to any server or host, so that they need not be read
//! again.
//!
//! The kernel keeps one /proc entry for a process as long as the process lives: while inode and creation time of the
//! entry are the same, it is the same process. Reading these two takes 2 us instead of 17 us for the files of the
//! process. (When memory is short the kernel may recreate the entry; then the process is read again.) An entry does
//! not show an `exec` or a new title. So a process is not remembered if it is young or near a server or a host, and
//! never for longer than some scans; a remembered process that turns out to be near one is read again before the
//! verdict. A server that was remembered as unrelated is found a few scans later, and no process is ended because of
//! that.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::facts::{Facts, Process};
use crate::knowledge::Knowledge;

/// The number of scans after which every process is read again.
pub(super) const SCANS: u32 = 10;

/// Younger processes may still call `exec`.
const EXEC_AGE: Duration = Duration::from_secs(10);

/// The /proc entry of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcEntry {
    pub(super) inode: u64,
    pub(super) made: (i64, u32),
}

/// One unrelated process, with the facts that show whether it is near a server or a host.
#[derive(Clone, Copy, Debug)]
struct UnrelatedProcess {
    node: ProcEntry,
    start: u64,
    pid: i32,
    ppid: i32,
    session: i32,
    uid: u32,
}

/// The unrelated processes of earlier scans.
#[derive(Debug)]
pub struct UnrelatedProcesses {
    /// Unrelated processes, by PID.
    known: Vec<UnrelatedProcess>,
    /// Kernel threads, by PID.
    kernel: Vec<(i32, ProcEntry)>,
    /// The number of scans since every process was read.
    scans: u32,
    /// A hash of the commands that were declared when these processes were found to be unrelated.
    declared: u64,
    /// See [`EXEC_AGE`].
    pub(super) exec_age: Duration,
}

impl Default for UnrelatedProcesses {
    fn default() -> UnrelatedProcesses {
        UnrelatedProcesses { known: Vec::new(), kernel: Vec::new(), scans: 0, declared: 0, exec_age: EXEC_AGE }
    }
}

impl UnrelatedProcesses {
    /// Begins a scan.
    pub(super) fn begin(&mut self, knowledge: &Knowledge) {
        let mut hasher = DefaultHasher::new();
        knowledge.declared.iter().for_each(|declared| (&declared.command, &declared.project).hash(&mut hasher));
        let declared = hasher.finish();
        self.scans += 1;
        if self.scans >= SCANS || declared != self.declared {
            *self = UnrelatedProcesses { declared, exec_age: self.exec_age, ..UnrelatedProcesses::default() };
        }
    }

    /// True if this is a kernel thread.
    pub(super) fn is_kernel(&self, pid: i32, node: &ProcEntry) -> bool {
        self.kernel.binary_search_by_key(&pid, |(pid, _)| *pid).is_ok_and(|at| self.kernel[at].1 == *node)
    }

    /// The remembered process, if the /proc entry is still the same.
    pub(super) fn find(&self, pid: i32, node: &ProcEntry) -> Option<Process> {
        let at = self.known.binary_search_by_key(&pid, |process| process.pid).ok()?;
        Some(&self.known[at]).filter(|process| process.node == *node).map(UnrelatedProcess::process)
    }

    /// Ends a scan: `unrelated` are the unrelated processes. Both lists are in the order of their PIDs.
    pub(super) fn end<'a>(
        &mut self,
        facts: &Facts,
        unrelated: impl Iterator<Item = (&'a Process, ProcEntry)>,
        kernel: Vec<(i32, ProcEntry)>,
    ) {
        let exec_age = unrelated.filter(|(process, _)| process.age(facts) >= self.exec_age);
        self.known = exec_age.map(|(process, node)| UnrelatedProcess::of(process, node)).collect();
        self.known.shrink_to_fit();
        self.kernel = kernel;
    }
}

impl UnrelatedProcess {
    fn of(process: &Process, node: ProcEntry) -> UnrelatedProcess {
        UnrelatedProcess {
            node,
            start: process.id.start,
            pid: process.id.pid,
            ppid: process.ppid,
            session: process.session,
            uid: process.uid,
        }
    }

    fn process(&self) -> Process {
        let mut process = Process::new(self.pid, self.start);
        process.ppid = self.ppid;
        process.session = self.session;
        process.uid = self.uid;
        process
    }
}
