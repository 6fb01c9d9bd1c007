//! The leak test kit. It tests whether a server exits when asked, whether a host ends its servers, and which processes
//! are left.
//!
//! The program under test runs in a containment of leash, so that all its processes are known and are ended
//! afterwards; a verdict is about its own behaviour, before leash acts. The requirements are a table ([`rule`]); plans
//! and verdicts are pure (`stdio/plan.rs`, `judge.rs`), effects are small ([`stdio`], [`http`], [`host`]).

pub mod host;
pub mod http;
pub mod report;
pub mod rule;
mod stderr_tail;
pub mod stdio;
mod stop;
mod subject;
pub mod survivor;
mod terminal;

use thiserror::Error;

use leash_model::{receipt::signal_name, start_failure::StartFailure};

pub use report::{CheckReport, Row, Status};
pub use stop::StopSignals;
pub use terminal::take_terminal;

/// The reason why a check has no result.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The program under test did not start.
    #[error("cannot start `{name}`")]
    Start {
        /// Its command.
        name: String,
        /// The cause.
        source: StartFailure,
    },
    /// /proc belongs to another PID namespace, so its PIDs can't be used.
    #[error("cannot watch processes here: {0}")]
    Proc(String),
    /// The URL can't be used.
    #[error("`{url}` is not an address: {why}")]
    Url {
        /// The URL as given.
        url: String,
        /// The problem.
        why: String,
    },
    /// A signal stopped the check. Everything that it had started was ended.
    #[error("stopped by {}", signal_name(*signal))]
    Stopped {
        /// The signal.
        signal: i32,
    },
    /// A file or a socket that a check needs failed.
    #[error("cannot prepare a check")]
    Io(#[from] std::io::Error),
}

/// The receiver of the descriptions of the steps.
pub type Progress<'a> = &'a mut dyn FnMut(&str);
