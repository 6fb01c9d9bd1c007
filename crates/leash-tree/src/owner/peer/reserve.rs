//! Descriptors that are kept so that they can be given up: a gateway without a free one must still find out who its clients are.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, getrlimit};

/// Open descriptors without any other use.
#[derive(Debug)]
pub(super) struct Reserve {
    spare: Vec<OwnedFd>,
    most: usize,
}

impl Reserve {
    /// Keeps up to `most` descriptors, but not more than an eighth of those that the process may have.
    pub(super) fn new(most: usize) -> Reserve {
        let mut reserve = Reserve { spare: Vec::new(), most: size(most, getrlimit(Resource::Nofile).current) };
        reserve.fill();
        reserve
    }

    /// Opens those that were given up, as far as there is room.
    pub(super) fn fill(&mut self) {
        while self.spare.len() < self.most {
            // A path alone: nothing is opened, and a number is taken.
            let Ok(spare) = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { return };
            self.spare.push(spare);
        }
    }

    /// Gives all of them up; false if there is none.
    pub(super) fn give_up(&mut self) -> bool {
        let any = !self.spare.is_empty();
        self.spare.clear();
        any
    }
}

fn size(most: usize, limit: Option<u64>) -> usize {
    let share = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 8).unwrap_or(usize::MAX));
    most.min(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_process_keeps_a_small_reserve() {
        for (limit, expected) in [(None, 16), (Some(1024), 16), (Some(64), 8), (Some(9), 1), (Some(7), 0)] {
            assert_eq!(size(16, limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn what_was_given_up_is_taken_again() {
        let mut reserve = Reserve::new(3);
        assert_eq!(reserve.spare.len(), 3);
        assert!(reserve.give_up());
        assert!(!reserve.give_up());
        reserve.fill();
        assert_eq!(reserve.spare.len(), 3);
    }
}
