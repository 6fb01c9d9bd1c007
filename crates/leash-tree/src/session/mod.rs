//! Sessions in the ledger: reads the living ones, and ends them from outside.

pub mod alive;
mod ending;
mod held;
pub mod remembered;
mod together;

pub use ending::{EndReport, Ending, SweepUpstreams, Target, Unfinished};
#[cfg(feature = "tokio")]
pub use held::AsyncStreams;
#[cfg(feature = "rmcp")]
pub(crate) use held::run_on_thread;
pub use held::{Session, SessionEnding, SessionError};
pub use together::together;
