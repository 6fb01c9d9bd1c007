//! Exit codes of leash itself. Otherwise `run` exits like the server: with its code, or 128 + n after signal n.

use leash_model::start_failure::StartFailure;

/// Success.
pub(crate) const OK: u8 = 0;
/// `end` and `doctor`: the command ran, but some results are not as they should be.
pub(crate) const NOT_ALL: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// leash itself failed.
pub(crate) const LEASH_FAILED: u8 = 125;
/// The command may not be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit code of a command that could not start its server.
pub(crate) fn of_failed_start(failure: &StartFailure) -> u8 {
    match failure {
        StartFailure::NoCommand => USAGE,
        StartFailure::NotFound { .. } => NOT_FOUND,
        StartFailure::IsDirectory { .. } | StartFailure::NotExecutable { .. } | StartFailure::Exec { .. } => {
            CANNOT_EXECUTE
        }
        StartFailure::WorkingDirectory { .. }
        | StartFailure::Owner { .. }
        | StartFailure::Ledger { .. }
        | StartFailure::SharedLedger { .. }
        | StartFailure::Contain { .. }
        | StartFailure::Resources { .. }
        | StartFailure::Internal { .. }
        | StartFailure::Unreachable { .. }
        | StartFailure::Ended => LEASH_FAILED,
    }
}
