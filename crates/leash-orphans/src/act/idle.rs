//! The memory of `leash watch --pressure`: since when each tree that may be stopped has been idle. Pure: time is an
//! argument.

use std::collections::HashMap;
use std::time::Duration;

use leash_model::clock::Moment;
use leash_tree::platform::activity::TreeActivity;

/// The work of each tree at the last look, and the first look that saw the same.
#[derive(Debug)]
pub struct IdleMemory<A = TreeActivity> {
    seen: HashMap<String, (A, Moment)>,
}

impl<A> Default for IdleMemory<A> {
    fn default() -> IdleMemory<A> {
        IdleMemory { seen: HashMap::new() }
    }
}

impl<A: PartialEq> IdleMemory<A> {
    /// Records a look at all trees, by their runs. A tree that is missing, or whose work can't be read, is forgotten.
    pub fn note(&mut self, looks: Vec<(String, Option<A>)>, now: Moment) {
        let mut before = std::mem::take(&mut self.seen);
        for (run, work) in looks {
            let Some(work) = work else { continue };
            let since = before.remove(&run).filter(|(known, _)| *known == work).map_or(now, |(_, since)| since);
            self.seen.insert(run, (work, since));
        }
    }

    /// The time for which a tree is known to be idle at the last look.
    pub fn idle(&self, run: &str, now: Moment) -> Option<Duration> {
        self.seen.get(run).map(|(_, since)| now.since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at one tree once a second; `None`: it can't be read. Checks for how long it is idle after each look.
    fn check(looks: &[Option<u32>], expected: &[Option<u64>]) {
        let mut memory = IdleMemory::default();
        let at = |second: usize| Moment::from_boot(Duration::from_secs(second as u64));
        let mut idle = Vec::new();
        for (second, look) in looks.iter().enumerate() {
            memory.note(vec![("run".to_owned(), *look), ("other".to_owned(), Some(second as u32))], at(second));
            idle.push(memory.idle("run", at(second)).map(|idle| idle.as_secs()));
            assert_eq!(memory.idle("other", at(second)), Some(Duration::ZERO), "it works all the time");
        }
        assert_eq!(idle, expected, "{looks:?}");
    }

    #[test]
    fn idle_time_begins_with_the_first_look_after_the_last_work() {
        check(&[Some(7), Some(7), Some(7)], &[Some(0), Some(1), Some(2)]);
        check(&[Some(7), Some(7), Some(8), Some(8)], &[Some(0), Some(1), Some(0), Some(1)]);
        check(&[None, Some(7), Some(7)], &[None, Some(0), Some(1)]);
        // A look that failed proves nothing.
        check(&[Some(7), None, Some(7), Some(7)], &[Some(0), None, Some(0), Some(1)]);
    }

    #[test]
    fn tree_that_is_missing_is_forgotten() {
        let mut memory = IdleMemory::default();
        let at = |second| Moment::from_boot(Duration::from_secs(second));
        memory.note(vec![("run".to_owned(), Some(1))], at(0));
        memory.note(Vec::new(), at(1));
        assert_eq!(memory.idle("run", at(1)), None);
    }
}
