//! What `leash watch` remembers from look to look, and what it may end. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use super::judge::Policy;
use super::verdict::{Finding, Verdict};
use leash_model::clock::Moment;
use leash_model::identity::Identity;
use leash_tree::platform::{linux, mappings};

/// How long the ends of a server must be gone while its parent lives. Hosts that end a server properly close its stdin first and wait
/// 2 s, send SIGTERM and wait 2 s more; a slow machine may double that.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Younger servers are left alone: a host may still be putting them together.
pub const MIN_AGE: Duration = Duration::from_secs(60);

/// How many looks must agree.
pub const LOOKS: u32 = 2;

/// How often to look when nothing happens.
pub const INTERVAL: Duration = Duration::from_secs(60);

/// What `watch` asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// See [`SETTLE`].
    pub settle: Duration,
    /// See [`MIN_AGE`].
    pub min_age: Duration,
    /// See [`LOOKS`].
    pub looks: u32,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { settle: SETTLE, min_age: MIN_AGE, looks: LOOKS }
    }
}

/// What was seen of one server.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// Its ends are known to be gone since then, without a look that said otherwise.
    gone_since: Moment,
    /// How many looks in a row called it proved.
    proved: u32,
}

/// The memory of earlier looks.
#[derive(Debug, Default)]
pub struct Memory {
    seen: HashMap<(i32, u64), Sighting>,
}

impl Memory {
    /// How careful the next look has to be.
    pub fn policy(&self, terms: &Terms, now: Moment) -> Policy {
        let gone = |(id, sighting): (&(i32, u64), &Sighting)| (*id, now.since(sighting.gone_since));
        Policy { settle: terms.settle, gone_for: self.seen.iter().map(gone).collect() }
    }

    /// Takes a look into account, and says who may be ended: proved by enough looks in a row, and old enough. A server that is not
    /// among the findings, or whose ends are held again, is forgotten.
    pub fn note(&mut self, findings: &[Finding], terms: &Terms, now: Moment) -> Vec<Identity> {
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
            if proved >= terms.looks && finding.age >= terms.min_age {
                due.push(finding.root);
            }
        }
        self.seen = seen;
        due
    }

    /// When the next look is worth it, beside the usual interval: soon, when somebody waits to be proved.
    pub fn next_look(&self, terms: &Terms, interval: Duration, now: Moment) -> Moment {
        let waiting = !self.seen.is_empty();
        let soon = (terms.settle / 2).max(Duration::from_millis(100));
        now + if waiting { soon.min(interval) } else { interval }
    }
}

/// Nothing is to be done for a while: gives back memory that the last look needed and the next one will take again.
pub fn rest() {
    linux::give_back_memory();
    mappings::give_back_program();
}

/// The order in which proved orphans are ended. A budget makes nobody killable: it only says that the largest go first while all
/// servers together have more than that; otherwise the oldest do.
pub fn order(due: &mut [(Finding, u64)], in_use: u64, budget: Option<u64>) {
    match budget {
        Some(budget) if in_use > budget => due.sort_by_key(|(_, memory)| std::cmp::Reverse(*memory)),
        _ => due.sort_by_key(|(finding, _)| std::cmp::Reverse(finding.age)),
    }
}

#[cfg(test)]
mod tests;
