//! Memory that a burst of clients needed. The allocator keeps what is freed in the middle of its heap, so that a gateway which had
//! ten thousand clients for a minute would hold 190 MB for the rest of its life. When most of them are gone it is given back.

use std::cell::Cell;

use crate::limits;
use crate::tree::linux;

/// How many there were, of whatever takes memory.
#[derive(Debug, Default)]
pub(crate) struct Tide {
    high: Cell<usize>,
}

impl Tide {
    /// One more came: there are so many.
    pub(crate) fn rose(&self, now: usize) {
        self.high.set(self.high.get().max(now));
    }

    /// One left: there are so many.
    pub(crate) fn fell(&self, now: usize) {
        if self.is_low(now) {
            linux::give_back_memory();
        }
    }

    /// Whether most are gone of what was many. Once for each burst and each time that three quarters of the rest are gone.
    fn is_low(&self, now: usize) -> bool {
        let low = self.high.get() >= limits::TIDE && now <= self.high.get() / 4;
        if low {
            self.high.set(now);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_noticed_when_most_of_it_is_gone() {
        let tide = Tide::default();
        let lows = |most: usize| {
            (0..=most).for_each(|now| tide.rose(now));
            (0..most).rev().filter(|now| tide.is_low(*now)).collect::<Vec<_>>()
        };
        assert_eq!(lows(limits::TIDE - 1), [0; 0]);
        assert_eq!(lows(limits::TIDE), [limits::TIDE / 4]);
        assert_eq!(lows(limits::TIDE * 5), [limits::TIDE * 5 / 4, limits::TIDE * 5 / 16]);
    }
}
