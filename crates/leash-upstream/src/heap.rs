//! Memory that a burst of clients needed. The allocator keeps what is freed in the middle of its heap, so that a gateway which had
//! ten thousand clients for a minute would hold 190 MB for the rest of its life. When most of them are gone it is given back.
//!
//! Clients that come and go leave holes as well, where for a moment there were more of them than usual. So it is also given back
//! each time that as many have left as there ever were at once: what that costs grows with their number too, so it is the same
//! for each of them.

use std::cell::Cell;
use std::rc::Rc;

use leash_model::limits;
use leash_tree::platform::linux;

/// How many there are of whatever takes memory: sessions, and connections on both sides. A cheap handle.
#[derive(Clone, Debug, Default)]
pub struct Tide(Rc<Level>);

#[derive(Debug, Default)]
struct Level {
    now: Cell<usize>,
    /// Most at once, since memory was given back.
    high: Cell<usize>,
    /// Those who left since then.
    gone: Cell<usize>,
}

/// One of them, until it is dropped. To be dropped after the memory it stands for.
#[derive(Debug)]
pub struct Afloat(Tide);

impl Tide {
    /// One more came.
    pub fn rise(&self) -> Afloat {
        let level = &self.0;
        level.now.update(|now| now + 1);
        level.high.set(level.high.get().max(level.now.get()));
        Afloat(self.clone())
    }

    /// One left. Whether most are gone of what was many, or all of them have been followed by others: once for each burst and each
    /// time that three quarters of the rest are gone.
    fn fall(&self) -> bool {
        let Level { now, high, gone } = &*self.0;
        now.update(|now| now - 1);
        if high.get() < limits::TIDE {
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

impl Drop for Afloat {
    fn drop(&mut self) {
        if self.0.fall() {
            linux::give_back_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_noticed_when_most_of_it_is_gone() {
        let tide = Tide::default();
        let lows = |most: usize| {
            let all: Vec<Afloat> = (0..most).map(|_| tide.rise()).collect();
            // What their drop does, seen from here.
            all.into_iter().for_each(std::mem::forget);
            (0..most).rev().filter(|_| tide.fall()).collect::<Vec<_>>()
        };
        assert_eq!(lows(limits::TIDE - 1), [0; 0]);
        assert_eq!(lows(limits::TIDE), [limits::TIDE / 4]);
        assert_eq!(lows(limits::TIDE * 5), [limits::TIDE * 5 / 4, limits::TIDE * 5 / 16]);
    }

    #[test]
    fn those_who_come_and_go_are_noticed_when_all_were_others_once() {
        let tide = Tide::default();
        let few: Vec<Afloat> = (0..limits::TIDE - 2).map(|_| tide.rise()).collect();
        let turns = |times: usize| {
            let turn = |_: &usize| {
                std::mem::forget(tide.rise());
                tide.fall()
            };
            (0..times).filter(turn).collect::<Vec<_>>()
        };
        assert_eq!(turns(10 * limits::TIDE), [0; 0], "few take little, however often they change");
        let many: Vec<Afloat> = (0..limits::TIDE).map(|_| tide.rise()).collect();
        let each = 2 * limits::TIDE;
        assert_eq!(turns(2 * each), [each - 1, 2 * each - 1]);
        few.into_iter().chain(many).for_each(std::mem::forget);
    }

    #[test]
    fn whoever_is_dropped_is_gone() {
        let tide = Tide::default();
        let (first, second) = (tide.rise(), tide.clone().rise());
        drop(first);
        assert_eq!(tide.0.now.get(), 1);
        drop(second);
        assert_eq!((tide.0.now.get(), tide.0.high.get()), (0, 2));
    }
}
