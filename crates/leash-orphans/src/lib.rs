//! MCP servers that other programs started and left behind.
//!
//! ```text
//! scan (facts) ──> judge (pure: verdict and evidence) ──> act (asks again, then the ladder, then the proof)
//! ```
//! [`scan`](scan::scan) reads /proc once and records the facts. [`judge`](judge::judge()) decides from these facts
//! alone, so tests can cover every decision with invented facts. [`act`] signals a process only if it holds its pidfd
//! and the process was judged again while the pidfd was held.
//!
//! A server is an orphan when no process outside of its own tree holds the other ends of its stdin and stdout or has a
//! connection to it. Age, size, idleness and process 1 as its parent prove nothing. A holder that could not be read
//! counts as a possible holder.

pub mod act;
pub mod adopt;
pub mod belongings;
pub mod clients;
pub mod facts;
mod holders;
pub mod identify;
pub mod judge;
mod kin;
pub mod knowledge;
mod place;
pub mod scan;
mod unix_diag;
pub mod verdict;
pub mod watch;

pub use facts::{Channel, Facts, Kind, OtherEnd, Process, Served, Unread};
pub use judge::{Policy, judge};
pub use knowledge::Knowledge;
pub use verdict::{Evidence, Finding, Role, Verdict};
