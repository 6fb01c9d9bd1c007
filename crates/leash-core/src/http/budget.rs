//! Memory that the bodies of all requests may take together. Each one has a limit of its own, but there can be thousands at once.

use std::cell::Cell;
use std::rc::Rc;

/// What there is, and how much of it is taken.
pub(crate) struct Budget {
    most: usize,
    used: Cell<usize>,
}

/// What one request takes; given back when it is dropped.
pub(crate) struct Share {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Rc<Budget> {
        Rc::new(Budget { most, used: Cell::new(0) })
    }

    /// A share, of nothing yet.
    pub(crate) fn share(self: &Rc<Self>) -> Share {
        Share { budget: Rc::clone(self), bytes: 0 }
    }
}

impl Share {
    /// Takes more; `false` if there is not so much.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let used = self.budget.used.get() + bytes;
        let fits = used <= self.budget.most;
        if fits {
            self.budget.used.set(used);
            self.bytes += bytes;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.take(4) && other.take(3) && one.take(3));
        assert!(!other.take(1), "there is nothing left");
        drop(one);
        assert!(other.take(7));
        assert!(!other.take(1));
        drop(other);
        assert!(budget.share().take(10));
    }
}
