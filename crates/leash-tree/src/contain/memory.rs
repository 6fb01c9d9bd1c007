//! The memory of a cgroup with a budget, as the kernel counts it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::platform::proc::read_small;

/// A cgroup with a memory budget.
#[derive(Debug)]
pub(crate) struct MemoryGauge {
    dir: PathBuf,
    /// A file of events, open. It wakes a poll (POLLPRI) when the kernel slows the members down or kills one.
    events: File,
}

/// How the members of a cgroup keep to their memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// The times that the budget was used up, so that the kernel looked for a process to kill.
    pub(crate) exhausted: u64,
    /// True if they use so much of their budget that the kernel slows them down.
    pub(crate) is_slowed_down: bool,
}

impl MemoryGauge {
    /// Opens the events of a cgroup: `memory.events`, or `memory.events.local` without those of the cgroups below it.
    /// `None` if it has no memory budget.
    pub(crate) fn open(dir: &Path, events: &str) -> io::Result<Option<MemoryGauge>> {
        let has_budget = read_small(dir.join("memory.max")).is_some_and(|limit| limit.trim() != "max");
        if !has_budget {
            return Ok(None);
        }
        Ok(Some(MemoryGauge { dir: dir.to_owned(), events: File::open(dir.join(events))? }))
    }

    /// How its members keep to the budget; `None` if the kernel does not say it.
    pub(crate) fn read(&self) -> Option<MemoryUse> {
        // Reading it ends the state in which it wakes a poll.
        rustix::io::pread(&self.events, &mut [0; 256], 0).ok()?;
        let own_events = read_small(self.dir.join("memory.events.local")).unwrap_or_default();
        let high = read_small(self.dir.join("memory.high"))?.trim().parse::<u64>().ok();
        let is_over = |(now, high): (u64, u64)| now >= high;
        Some(MemoryUse {
            exhausted: count(&own_events, "oom"),
            is_slowed_down: in_use(&self.dir).zip(high).is_some_and(is_over),
        })
    }
}

impl AsFd for MemoryGauge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The bytes that the kernel cannot take back from the members of a cgroup: all but the pages of files and caches.
/// The kernel takes those back before it slows a tree down. `None` if the cgroup is gone or its memory is not counted.
pub(crate) fn in_use(dir: &Path) -> Option<u64> {
    let now = read_small(dir.join("memory.current"))?.trim().parse::<u64>().ok()?;
    let stat = read_small(dir.join("memory.stat")).unwrap_or_default();
    let taken_back: u64 =
        ["active_file", "inactive_file", "slab_reclaimable"].map(|name| count(&stat, name)).iter().sum();
    Some(now.saturating_sub(taken_back))
}

/// The number behind a name in a file such as `memory.events`; 0 if the name is missing.
pub(crate) fn count(text: &str, name: &str) -> u64 {
    let number = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_their_whole_name() {
        let text = "low 0\nhigh 12\nmax 3\noom 2\noom_kill 1\noom_group_kill 4\n";
        assert_eq!(["oom", "oom_kill", "high", "none"].map(|name| count(text, name)), [2, 1, 12, 0]);
    }
}
