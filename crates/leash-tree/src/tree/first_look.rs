//! The first look of a process at where it comes from: its parent, and the signals that it inherited.

use super::driver::END_SIGNAL;
use crate::owner::{self, OwnerWatch, Parent};
use crate::platform::linux::InheritedSignals;
use crate::platform::proc::Proc;

/// The parent process and the inherited signals. Callers take it in the first instructions of `main`, before either can
/// change.
#[derive(Debug)]
pub struct FirstLook {
    parent: Parent,
    signals: InheritedSignals,
}

impl FirstLook {
    /// Takes hold of the parent and looks at the inherited signals.
    pub fn take() -> FirstLook {
        FirstLook { parent: Parent::take(), signals: InheritedSignals::look() }
    }

    /// Returns the parent and the inherited signals.
    pub fn into_parts(self) -> (Parent, InheritedSignals) {
        (self.parent, self.signals)
    }

    /// The controlling terminal as an owner; `None` if the parent is in another session, or if `nohup` ignores SIGHUP.
    pub fn terminal(&self) -> Option<OwnerWatch> {
        owner::terminal_of(&Proc::own().ok()?, self.signals)
    }
}

/// The signals that a supervisor or a connection takes. A signal that was ignored at the start stays ignored: `nohup` ignores SIGHUP,
/// and a shell starts a background job with SIGINT ignored. SIGTERM always counts.
pub fn listened(inherited: InheritedSignals) -> Vec<i32> {
    let optional = [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].into_iter().filter(|signal| !inherited.ignores(*signal));
    [libc::SIGTERM, libc::SIGCHLD, END_SIGNAL].into_iter().chain(optional).collect()
}
