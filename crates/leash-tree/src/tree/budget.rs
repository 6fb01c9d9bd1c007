//! The memory budget of a tree, as a pure decision: no clock, no file.

use leash_model::clock::Moment;
use leash_model::limits;

use crate::contain::leaf::MemoryUse;

/// The decision about a tree with a memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetVerdict {
    /// It keeps to its budget, or has only just come near it.
    Within,
    /// The kernel has slowed it down for so long that it will not recover.
    Over,
    /// The kernel has killed it.
    Killed,
}

/// Remembers since when the kernel slows a tree down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BudgetWatch {
    slow_since: Option<Moment>,
}

impl BudgetWatch {
    /// Looks at the use of memory now.
    pub(crate) fn look(&mut self, usage: MemoryUse, now: Moment) -> BudgetVerdict {
        self.slow_since = usage.is_slowed_down.then(|| self.slow_since.unwrap_or(now));
        match (usage.kills, self.deadline()) {
            (1.., _) => BudgetVerdict::Killed,
            (0, Some(deadline)) if now >= deadline => BudgetVerdict::Over,
            (0, _) => BudgetVerdict::Within,
        }
    }

    /// The time at which to look again; `None` if an event comes first.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.slow_since.map(|since| since + limits::OVER_BUDGET)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    const SLOW: MemoryUse = MemoryUse { kills: 0, is_slowed_down: true };
    const FREE: MemoryUse = MemoryUse { kills: 0, is_slowed_down: false };

    #[test]
    fn a_tree_that_stays_slow_is_over_its_budget() {
        let longest = limits::OVER_BUDGET.as_millis() as u64;
        let mut watch = BudgetWatch::default();
        assert_eq!((watch.look(FREE, at(0)), watch.deadline()), (BudgetVerdict::Within, None));
        assert_eq!((watch.look(SLOW, at(5)), watch.deadline()), (BudgetVerdict::Within, Some(at(5 + longest))));
        assert_eq!(watch.look(SLOW, at(4 + longest)), BudgetVerdict::Within);
        assert_eq!(watch.look(SLOW, at(5 + longest)), BudgetVerdict::Over);
    }

    #[test]
    fn a_tree_that_frees_memory_starts_again() {
        let longest = limits::OVER_BUDGET.as_millis() as u64;
        let mut watch = BudgetWatch::default();
        watch.look(SLOW, at(0));
        watch.look(FREE, at(longest - 1));
        assert_eq!(watch.look(SLOW, at(longest)), BudgetVerdict::Within);
        assert_eq!(watch.look(SLOW, at(2 * longest)), BudgetVerdict::Over);
    }

    #[test]
    fn a_kill_by_the_kernel_decides_at_once() {
        let mut watch = BudgetWatch::default();
        assert_eq!(watch.look(MemoryUse { kills: 2, ..FREE }, at(0)), BudgetVerdict::Killed);
        assert_eq!(watch.look(MemoryUse { kills: 1, ..SLOW }, at(1)), BudgetVerdict::Killed);
    }
}
