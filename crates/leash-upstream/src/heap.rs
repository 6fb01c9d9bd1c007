//! Heap trimming after a burst of clients. The allocator keeps memory that is freed in the middle of its heap, so a
//! gateway that had ten thousand clients for a minute would hold 190 MB for the rest of its life. leash trims the heap
//! when most of them are gone.
//!
//! Clients that come and go also leave holes in the heap, if there were more of them than usual for a moment. So leash
//! also trims each time that as many clients have left as there were at most. The cost of a trim grows with that
//! number, so the cost per client stays the same. When the last client of a burst has left, leash trims once more: those
//! that left after the last trim may have used some megabytes.

use std::{cell::Cell, rc::Rc};

use leash_model::limits;
use leash_tree::platform::linux;

/// Counts the items that take memory: sessions, and connections on both sides. A cheap handle.
#[derive(Clone, Debug, Default)]
pub struct HeapTrimmer(Rc<HeapCount>);

#[derive(Debug, Default)]
struct HeapCount {
    now: Cell<usize>,
    /// The largest number since the last trim.
    high: Cell<usize>,
    /// The number of items that were dropped since the last trim.
    gone: Cell<usize>,
    /// True if there were many items at some time since there was none.
    many: Cell<bool>,
}

/// Counts one item until it is dropped. Drop it after the item's memory.
#[derive(Debug)]
pub struct Counted(HeapTrimmer);

impl HeapTrimmer {
    /// Counts one more item.
    pub fn count(&self) -> Counted {
        let level = &self.0;
        level.now.update(|now| now + 1);
        level.high.set(level.high.get().max(level.now.get()));
        level.many.set(level.many.get() || level.now.get() >= limits::HEAP_TRIM);
        Counted(self.clone())
    }

    /// Counts one item less. Returns true if the heap is to be trimmed: all or at least three quarters of many items are
    /// gone, or as many items were dropped as there were at most. After each trim, the count starts from the remaining
    /// items.
    fn uncount(&self) -> bool {
        let HeapCount { now, high, gone, many } = &*self.0;
        now.update(|now| now - 1);
        if now.get() == 0 && many.replace(false) {
            high.set(0);
            gone.set(0);
            return true;
        }
        if high.get() < limits::HEAP_TRIM {
            return false;
        }
        gone.update(|gone| gone + 1);
        let low = now.get() <= high.get() / 4 || gone.get() > high.get();
        if low {
            high.set(now.get());
            gone.set(0);
        }
        low
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.uncount() {
            linux::give_back_heap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trim_after_most_of_a_burst_is_gone() {
        let trimmer = HeapTrimmer::default();
        let lows = |most: usize| {
            let all: Vec<Counted> = (0..most).map(|_| trimmer.count()).collect();
            // Calls `uncount` directly instead of dropping the items, so that the test sees its result.
            all.into_iter().for_each(std::mem::forget);
            (0..most).rev().filter(|_| trimmer.uncount()).collect::<Vec<_>>()
        };
        assert_eq!(lows(limits::HEAP_TRIM - 1), [0; 0]);
        assert_eq!(lows(limits::HEAP_TRIM), [limits::HEAP_TRIM / 4, 0]);
        assert_eq!(lows(limits::HEAP_TRIM * 5), [limits::HEAP_TRIM * 5 / 4, limits::HEAP_TRIM * 5 / 16, 0]);
        assert_eq!(lows(1), [0; 0], "the burst is over");
    }

    #[test]
    fn trim_after_as_many_items_were_replaced_as_there_were() {
        let trimmer = HeapTrimmer::default();
        let few: Vec<Counted> = (0..limits::HEAP_TRIM - 2).map(|_| trimmer.count()).collect();
        let turns = |times: usize| {
            let turn = |_: &usize| {
                std::mem::forget(trimmer.count());
                trimmer.uncount()
            };
            (0..times).filter(turn).collect::<Vec<_>>()
        };
        assert_eq!(turns(10 * limits::HEAP_TRIM), [0; 0], "few items need no trim, however often they change");
        let many: Vec<Counted> = (0..limits::HEAP_TRIM).map(|_| trimmer.count()).collect();
        let each = 2 * limits::HEAP_TRIM;
        assert_eq!(turns(2 * each), [each - 1, 2 * each - 1]);
        few.into_iter().chain(many).for_each(std::mem::forget);
    }

    #[test]
    fn dropped_item_is_not_counted() {
        let trimmer = HeapTrimmer::default();
        let (first, second) = (trimmer.count(), trimmer.clone().count());
        drop(first);
        assert_eq!(trimmer.0.now.get(), 1);
        drop(second);
        assert_eq!((trimmer.0.now.get(), trimmer.0.high.get()), (0, 2));
    }
}
