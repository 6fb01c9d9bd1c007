//! The memory of `leash watch` from scan to scan, and the decision which servers it may end. Pure: time is an
//! argument.

use std::collections::HashMap;
use std::time::Duration;

use crate::judge::verdict::{Finding, Verdict};
use crate::judge::{JudgePolicy, SETTLE};
use leash_model::clock::Moment;
use leash_model::identity::Identity;
use leash_tree::platform::{linux, mappings};

/// Younger servers are not ended: a host may still be starting them.
pub const MIN_AGE: Duration = Duration::from_secs(60);

/// The number of scans that must agree.
pub const SCANS: u32 = 2;

/// The time between scans when nothing happens.
pub const INTERVAL: Duration = Duration::from_secs(60);

/// The limits of `watch`.
#[derive(Clone, Copy, Debug)]
pub struct WatchSettings {
    /// See [`SETTLE`].
    pub settle: Duration,
    /// See [`MIN_AGE`].
    pub min_age: Duration,
    /// See [`SCANS`].
    pub scans: u32,
    /// True while memory is low. Then a server of any age is due if the kernel reports both of its ends as closed: no
    /// process can open them again, so a host that is about to use it can't exist.
    pub memory_is_low: bool,
}

impl Default for WatchSettings {
    fn default() -> WatchSettings {
        WatchSettings { settle: SETTLE, min_age: MIN_AGE, scans: SCANS, memory_is_low: false }
    }
}

impl WatchSettings {
    fn is_old_enough(&self, finding: &Finding) -> bool {
        finding.age >= self.min_age || (self.memory_is_low && finding.ends_are_closed())
    }
}

/// The history of one server.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// The other ends have been closed since then in every scan.
    gone_since: Moment,
    /// The number of scans in a row with the verdict `OrphanProved`.
    proved: u32,
}

/// The results of earlier scans.
#[derive(Debug, Default)]
pub struct WatchMemory {
    seen: HashMap<(i32, u64), Sighting>,
}

impl WatchMemory {
    /// The policy for the next scan.
    pub fn policy(&self, settings: &WatchSettings, now: Moment) -> JudgePolicy {
        let gone = |(id, sighting): (&(i32, u64), &Sighting)| (*id, now.since(sighting.gone_since));
        JudgePolicy { settle: settings.settle, gone_for: self.seen.iter().map(gone).collect() }
    }

    /// Records a scan and returns the servers that may be ended: proved by enough scans in a row, and old enough. A
    /// server that is not among the findings, or whose other ends are open again, is forgotten.
    pub fn note(&mut self, findings: &[Finding], settings: &WatchSettings, now: Moment) -> Vec<Identity> {
        let mut seen = HashMap::new();
        let mut due = Vec::new();
        for finding in findings.iter().filter(|finding| finding.ends_gone) {
            let key = (finding.root.pid, finding.root.start);
            let before = self.seen.get(&key);
            let proved = match finding.verdict {
                Verdict::OrphanProved => before.map_or(0, |before| before.proved) + 1,
                Verdict::Live | Verdict::Unknown | Verdict::StaleHost | Verdict::OrphanLikely => 0,
            };
            seen.insert(key, Sighting { gone_since: before.map_or(now, |before| before.gone_since), proved });
            if proved >= settings.scans && settings.is_old_enough(finding) {
                due.push(finding.root);
            }
        }
        self.seen = seen;
        due
    }

    /// The time of the next scan: soon while a server waits to be proved, otherwise after the interval.
    pub fn next_scan(&self, settings: &WatchSettings, interval: Duration, now: Moment) -> Moment {
        let waiting = !self.seen.is_empty();
        let soon = (settings.settle / 2).max(Duration::from_millis(100));
        now + if waiting { soon.min(interval) } else { interval }
    }
}

/// Releases memory that the last scan used, before a longer pause; the next scan allocates it again.
pub fn release_memory() {
    linux::give_back_heap();
    mappings::give_back_program();
}

/// Sorts proved orphans in the order in which they are ended. The budget never decides whether a process is ended:
/// while all servers together use more than the budget, the largest orphan goes first, otherwise the oldest.
pub fn order(due: &mut [(Finding, u64)], in_use: u64, budget: Option<u64>) {
    match budget {
        Some(budget) if in_use > budget => due.sort_by_key(|(_, memory)| std::cmp::Reverse(*memory)),
        _ => due.sort_by_key(|(finding, _)| std::cmp::Reverse(finding.age)),
    }
}

#[cfg(test)]
mod tests;
