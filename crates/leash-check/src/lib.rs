//! The leak test kit: does a server leave when it is told to, does a host end what it started, and what is left behind?
//!
//! Whatever is tested runs in a containment of leash's own, so that what it leaves is known for sure and ended afterwards; a
//! verdict is about what it did by itself, before leash had to act. What is asked for is a table ([`rule`]); plans and
//! verdicts are pure (`stdio/plan.rs`, `judge.rs`), effects are small ([`stdio`], [`http`], [`host`]).

pub mod host;
pub mod http;
pub mod report;
pub mod rule;
mod said;
pub mod stdio;
mod stop;
mod subject;
pub mod survivor;
mod terminal;

use thiserror::Error;

use leash_model::receipt::signal_name;
use leash_tree::tree::TreeError;

pub use report::{Report, Row, Status};
pub use stop::Stop;
pub use terminal::sit_down;

/// Why nothing could be found out at all.
#[derive(Debug, Error)]
pub enum CheckError {
    /// What was to be tested did not start.
    #[error("cannot start `{name}`")]
    Start {
        /// Its command.
        name: String,
        /// Why not.
        source: TreeError,
    },
    /// /proc is not ours: nobody can be told apart there.
    #[error("no process can be watched here: {0}")]
    Proc(String),
    /// The address can't be used.
    #[error("`{url}` is not an address: {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody wanted it to end. Everything that was started is ended.
    #[error("stopped by {}", signal_name(*signal))]
    Stopped {
        /// By this signal.
        signal: i32,
    },
    /// A file or a socket that a check needs.
    #[error("cannot set the stage for a check")]
    Stage(#[from] std::io::Error),
}
