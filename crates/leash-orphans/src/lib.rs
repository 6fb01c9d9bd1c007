//! MCP servers that others started and left behind.
//!
//! ```text
//! scan (facts) ──> judge (pure: verdict and evidence) ──> act (asks again, then the ladder, then the proof)
//! ```
//! [`scan`](scan::scan) looks at the machine once and writes down what it saw. [`judge`](judge::judge()) decides from that alone, so
//! every decision can be tested with made-up machines. [`act`] never signals anything that was not judged a second time while
//! it was held.
//!
//! A server is an orphan when nobody outside of its own tree holds the other ends of its stdin and stdout, or has a connection to it:
//! not when it is old, large, idle, or a child of process 1. What could not be read is never taken for *nobody*.

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
