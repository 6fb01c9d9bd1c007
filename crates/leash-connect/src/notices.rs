//! The notices for the user. leash repeats a warning only after the operation has worked again.

use std::{cell::RefCell, collections::HashSet, io};

use leash_upstream::notice::Notice;

/// The kinds of warnings that leash gives only once, until the operation works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warning {
    Unreachable,
    Refused,
    NotMcp,
    Ledger,
    Keeper,
    HeaderCopies,
    NotJson,
}

/// Sends notices to the user.
pub(crate) struct Notices {
    given: RefCell<HashSet<Warning>>,
    tell: Box<dyn Fn(Notice)>,
}

impl Notices {
    pub(crate) fn new(tell: Box<dyn Fn(Notice)>) -> Notices {
        Notices { given: RefCell::default(), tell }
    }

    /// Sends a notice to the user.
    pub(crate) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    /// Warns the user.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        self.tell(Notice::Warning(text.into()));
    }

    /// Warns the user, unless leash gave the same kind of warning before and the operation has not worked since.
    pub(crate) fn warn_once(&self, warning: Warning, text: impl FnOnce() -> String) {
        if self.given.borrow_mut().insert(warning) {
            self.warn(text());
        }
    }

    /// Warns if the ledger could not be written. The connection goes on.
    pub(crate) fn check_written(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.warn_once(Warning::Ledger, || format!("the ledger is not up to date: {error}"));
        }
    }

    /// Records that the upstream responded. The next failure causes a new warning.
    pub(crate) fn upstream_works(&self) {
        let mut given = self.given.borrow_mut();
        given.remove(&Warning::Unreachable);
        given.remove(&Warning::Refused);
    }
}
