//! Memory that a burst of clients needed. The allocator keeps what is freed in the middle of its heap, so that a gateway which had
//! ten thousand clients for a minute would hold 190 MB for the rest of its life. When most of them are gone it is given back.

use std::cell::Cell;
use std::rc::Rc;

use crate::limits;
use crate::tree::linux;

/// How many there are of whatever takes memory: sessions, and connections on both sides. A cheap handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tide(Rc<Level>);

#[derive(Debug, Default)]
struct Level {
    now: Cell<usize>,
    high: Cell<usize>,
}

/// One of them, until it is dropped. To be dropped after the memory it stands for.
#[derive(Debug)]
pub(crate) struct Afloat(Tide);

impl Tide {
    /// One more came.
    pub(crate) fn rise(&self) -> Afloat {
        let level = &self.0;
        level.now.update(|now| now + 1);
        level.high.set(level.high.get().max(level.now.get()));
        Afloat(self.clone())
    }

    /// One left. Whether most are gone of what was many: once for each burst and each time that three quarters of the rest are gone.
    fn fall(&self) -> bool {
        let level = &self.0;
        level.now.update(|now| now - 1);
        let low = level.high.get() >= limits::TIDE && level.now.get() <= level.high.get() / 4;
        if low {
            level.high.set(level.now.get());
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
    fn whoever_is_dropped_is_gone() {
        let tide = Tide::default();
        let (first, second) = (tide.rise(), tide.clone().rise());
        drop(first);
        assert_eq!(tide.0.now.get(), 1);
        drop(second);
        assert_eq!((tide.0.now.get(), tide.0.high.get()), (0, 2));
    }
}
