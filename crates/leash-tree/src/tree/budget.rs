//! The memory budgets that hold for a tree, as a pure decision: no clock, no file.
//!
//! A tree may have a budget of its own, and share one with the other trees of its session and of the user. Over a shared
//! budget, each keeper looks whether its tree is the largest. If so, it ends the tree; the others live.

use std::collections::BTreeMap;

use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::BudgetScope;

use crate::contain::memory::MemoryUse;
use crate::contain::slice::{SliceUse, TreeMemory};

/// The decision about a tree with memory budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetVerdict {
    /// All budgets are kept, or were exceeded only just now, or another tree has to end.
    Within,
    /// The kernel has slowed the trees with this budget down for so long that they will not recover, and this tree has to
    /// end.
    Over(BudgetScope),
    /// The kernel has killed the tree because of this budget.
    Killed(BudgetScope),
}

/// One look at a budget that holds for a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetUse {
    pub(crate) of: BudgetScope,
    /// The budget was used up, so that the kernel killed a process.
    pub(crate) is_exhausted: bool,
    /// The kernel slows down the trees with this budget.
    pub(crate) is_slowed_down: bool,
    /// None of these trees is larger than this one.
    pub(crate) is_largest: bool,
}

impl BudgetUse {
    /// The use of the tree's own budget.
    pub(crate) fn of_tree(usage: MemoryUse) -> BudgetUse {
        let MemoryUse { exhausted, is_slowed_down } = usage;
        BudgetUse { of: BudgetScope::Tree, is_exhausted: exhausted > 0, is_slowed_down, is_largest: true }
    }

    /// The use of a budget that the tree in this scope shares with others.
    pub(crate) fn shared(usage: &SliceUse, scope: &str) -> BudgetUse {
        BudgetUse {
            of: usage.of,
            is_exhausted: usage.is_exhausted,
            is_slowed_down: usage.slowed_down.is_some(),
            is_largest: usage.slowed_down.as_deref().is_some_and(|trees| is_largest(scope, trees)),
        }
    }
}

/// True if the tree in `scope` is the largest one. Of trees of the same size exactly one is.
fn is_largest(scope: &str, trees: &[TreeMemory]) -> bool {
    trees.iter().max_by_key(|tree| (tree.bytes, &tree.scope)).is_some_and(|largest| largest.scope == scope)
}

/// Remembers since when the kernel slows trees down.
#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetWatch {
    slow_since: BTreeMap<BudgetScope, Moment>,
    /// The time at which to look again.
    look_at: Option<Moment>,
}

impl BudgetWatch {
    /// Looks at the budgets now, that of the tree first. `kills` is the number of its processes that the kernel killed for
    /// lack of memory.
    pub(crate) fn look(&mut self, kills: u64, budgets: &[BudgetUse], now: Moment) -> BudgetVerdict {
        self.slow_since.retain(|of, _| budgets.iter().any(|budget| budget.of == *of && budget.is_slowed_down));
        for budget in budgets.iter().filter(|budget| budget.is_slowed_down) {
            self.slow_since.entry(budget.of).or_insert(now);
        }
        let until = |since: &Moment| *since + limits::OVER_BUDGET;
        let again = |until: Moment| if until > now { until } else { now + limits::BUDGET_LOOK };
        self.look_at = self.slow_since.values().map(until).map(again).min();
        let is_over = |budget: &&BudgetUse| {
            budget.is_largest && self.slow_since.get(&budget.of).is_some_and(|since| now >= until(since))
        };
        if let Some(budget) = budgets.iter().find(|budget| budget.is_exhausted && kills > 0) {
            BudgetVerdict::Killed(budget.of)
        } else if let Some(budget) = budgets.iter().find(is_over) {
            BudgetVerdict::Over(budget.of)
        } else {
            BudgetVerdict::Within
        }
    }

    /// The time at which to look again; `None` if an event comes first.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use BudgetScope::{All, Session, Tree};
    use BudgetVerdict::{Killed, Over, Within};

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    /// The time after which a slow tree ends, in milliseconds.
    const LONGEST: u64 = limits::OVER_BUDGET.as_millis() as u64;

    fn free(of: BudgetScope) -> BudgetUse {
        BudgetUse { of, is_exhausted: false, is_slowed_down: false, is_largest: true }
    }

    fn slow(of: BudgetScope) -> BudgetUse {
        BudgetUse { is_slowed_down: true, ..free(of) }
    }

    #[test]
    fn a_tree_that_stays_slow_is_over_its_budget() {
        let mut watch = BudgetWatch::default();
        assert_eq!((watch.look(0, &[free(Tree)], at(0)), watch.deadline()), (Within, None));
        assert_eq!((watch.look(0, &[slow(Tree)], at(5)), watch.deadline()), (Within, Some(at(5 + LONGEST))));
        assert_eq!(watch.look(0, &[slow(Tree)], at(4 + LONGEST)), Within);
        assert_eq!(watch.look(0, &[slow(Tree)], at(5 + LONGEST)), Over(Tree));
    }

    #[test]
    fn a_tree_that_frees_memory_starts_again() {
        let mut watch = BudgetWatch::default();
        watch.look(0, &[slow(Tree)], at(0));
        watch.look(0, &[free(Tree)], at(LONGEST - 1));
        assert_eq!(watch.look(0, &[slow(Tree)], at(LONGEST)), Within);
        assert_eq!(watch.look(0, &[slow(Tree)], at(2 * LONGEST)), Over(Tree));
    }

    #[test]
    fn a_kill_by_the_kernel_decides_at_once() {
        let exhausted = |of| BudgetUse { is_exhausted: true, ..free(of) };
        let cases: [(u64, &[BudgetUse], BudgetVerdict); 7] = [
            (2, &[exhausted(Tree)], Killed(Tree)),
            (1, &[BudgetUse { is_exhausted: true, ..slow(Tree) }], Killed(Tree)),
            (1, &[free(Tree), exhausted(Session), free(All)], Killed(Session)),
            (1, &[exhausted(Session), exhausted(All)], Killed(Session)),
            (1, &[free(Session), exhausted(All)], Killed(All)),
            // The kernel killed a process of another tree.
            (0, &[exhausted(Session)], Within),
            // The machine had too little memory.
            (1, &[free(Tree), free(All)], Within),
        ];
        for (kills, budgets, expected) in cases {
            assert_eq!(BudgetWatch::default().look(kills, budgets, at(0)), expected, "{kills} {budgets:?}");
        }
    }

    #[test]
    fn only_the_largest_tree_ends_over_a_shared_budget() {
        let small = |of| BudgetUse { is_largest: false, ..slow(of) };
        let cases: [(&[BudgetUse], BudgetVerdict); 5] = [
            (&[slow(Session)], Over(Session)),
            (&[small(Session)], Within),
            (&[small(Session), slow(All)], Over(All)),
            (&[slow(Tree), small(All)], Over(Tree)),
            (&[free(Tree), small(Session), small(All)], Within),
        ];
        for (budgets, expected) in cases {
            let mut watch = BudgetWatch::default();
            assert_eq!(watch.look(0, budgets, at(0)), Within, "{budgets:?}");
            assert_eq!(watch.look(0, budgets, at(LONGEST)), expected, "{budgets:?}");
        }
    }

    #[test]
    fn each_budget_has_its_own_time() {
        let mut watch = BudgetWatch::default();
        watch.look(0, &[slow(Session), free(All)], at(0));
        assert_eq!(watch.look(0, &[free(Session), slow(All)], at(LONGEST)), Within);
        assert_eq!(watch.deadline(), Some(at(2 * LONGEST)));
        assert_eq!(watch.look(0, &[slow(Session), slow(All)], at(2 * LONGEST)), Over(All));
    }

    #[test]
    fn a_tree_that_lives_while_another_ends_looks_again_later() {
        let small = BudgetUse { is_largest: false, ..slow(Session) };
        let mut watch = BudgetWatch::default();
        watch.look(0, &[small], at(0));
        watch.look(0, &[small], at(LONGEST));
        assert_eq!(watch.deadline(), Some(at(LONGEST) + limits::BUDGET_LOOK), "no busy loop");
        assert_eq!(watch.look(0, &[slow(Session)], at(LONGEST + 1)), Over(Session), "the largest has shrunk");
    }

    #[test]
    fn exactly_one_tree_is_the_largest() {
        let trees = |sizes: &[(&str, u64)]| -> Vec<TreeMemory> {
            sizes.iter().map(|(scope, bytes)| TreeMemory { scope: (*scope).to_owned(), bytes: *bytes }).collect()
        };
        for (sizes, largest) in [
            (&[("a", 1), ("b", 3), ("c", 2)][..], "b"),
            (&[("a", 5), ("b", 5), ("c", 2)], "b"),
            (&[("b", 5), ("a", 5)], "b"),
            (&[("a", 0)], "a"),
        ] {
            let trees = trees(sizes);
            let found: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|scope| is_largest(scope, &trees)).collect();
            assert_eq!(found, [largest], "{sizes:?}");
        }
        assert!(!is_largest("a", &[]));
    }
}
