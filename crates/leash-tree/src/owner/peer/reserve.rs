//! A reserve of descriptors. A gateway without a free descriptor closes them, so that it can still find its clients'
//! processes.

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
    /// Keeps up to `most` descriptors, but not more than an eighth of the process's limit.
    pub(super) fn new(most: usize) -> Reserve {
        let mut reserve = Reserve { spare: Vec::new(), most: size(most, getrlimit(Resource::Nofile).current) };
        reserve.fill();
        reserve
    }

    /// Opens the descriptors that were given up, as far as there is room.
    pub(super) fn fill(&mut self) {
        while self.spare.len() < self.most {
            // O_PATH opens no file and only takes a number.
            let Ok(spare) = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { return };
            self.spare.push(spare);
        }
    }

    /// Closes all of them; false if there is none.
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
    fn released_descriptors_are_reopened() {
        let mut reserve = Reserve::new(3);
        assert_eq!(reserve.spare.len(), 3);
        assert!(reserve.give_up());
        assert!(!reserve.give_up());
        reserve.fill();
        assert_eq!(reserve.spare.len(), 3);
    }
}
