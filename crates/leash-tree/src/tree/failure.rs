//! Makes a [`StartFailure`] from the errors of the system and of the ledger.

use std::io;

use rustix::io::Errno;

use crate::ledger::store::StoreError;
use leash_model::error::{Cause, shown};
use leash_model::start_failure::StartFailure;

/// The failure of a step of leash itself. `what` names the step.
pub fn failed(what: &str, error: impl Into<io::Error>) -> StartFailure {
    let error = error.into();
    let (what, cause) = (what.to_owned(), Cause::new(&error));
    if is_limit(&error) { StartFailure::Resources { what, cause } } else { StartFailure::Internal { what, cause } }
}

/// The failure of one of leash's own processes that was started and is gone.
pub(super) fn ended_early(what: &str) -> StartFailure {
    failed(what, io::Error::other("it ended before the server ran"))
}

/// True if the kernel says that a limit of processes, descriptors or memory is used up.
fn is_limit(error: &io::Error) -> bool {
    let limits = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| limits.contains(&number))
}

impl From<StoreError> for StartFailure {
    fn from(error: StoreError) -> StartFailure {
        let what = shown(error.to_string());
        match error {
            StoreError::NotOurs { .. } | StoreError::Open { .. } => StartFailure::SharedLedger { what },
            StoreError::NotADirectory { .. } => StartFailure::Ledger { what, cause: None },
            StoreError::Unusable { source, .. } | StoreError::Write { source, .. } if is_limit(&source) => {
                StartFailure::Resources { what, cause: Cause::new(source) }
            }
            StoreError::Unusable { source, .. } | StoreError::Write { source, .. } => {
                StartFailure::Ledger { what, cause: Some(Cause::new(source)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_from_other_errors() {
        let is_resources = |errno: Errno| matches!(failed("x", errno), StartFailure::Resources { .. });
        assert!([Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM].into_iter().all(is_resources));
        assert!(![Errno::NOSYS, Errno::PERM, Errno::NOENT].into_iter().any(is_resources));
        assert!(matches!(ended_early("x"), StartFailure::Internal { .. }));
    }

    #[test]
    fn errors_of_the_ledger_keep_their_kind() {
        let dir = || "/run/x".into();
        let unusable = |errno: Errno| StartFailure::from(StoreError::Unusable { dir: dir(), source: errno.into() });
        let StartFailure::Ledger { what, cause: Some(cause) } = unusable(Errno::ACCESS) else { panic!("no cause") };
        assert_eq!(what, "runtime directory `/run/x` is not usable");
        assert!(cause.to_string().contains("Permission denied"), "{cause}");
        assert!(matches!(unusable(Errno::MFILE), StartFailure::Resources { .. }));
        let shared = StartFailure::from(StoreError::Open { dir: dir(), mode: 0o777 });
        assert!(matches!(&shared, StartFailure::SharedLedger { what } if what.contains("(mode 777)")), "{shared}");
        let file = StartFailure::from(StoreError::NotADirectory { dir: dir() });
        assert!(matches!(file, StartFailure::Ledger { cause: None, .. }), "{file}");
    }
}
