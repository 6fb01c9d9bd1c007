//! MCP servers that other programs started and left behind.
//!
//! ```text
//! clients ──> knowledge ──> scan (facts) ──> judge (pure: verdict and evidence) ──> act (asks again, then the ladder)
//!    └──────> adopt
//! ```
//! [`scan`](scan::scan) reads /proc once and records the [`facts`]; [`knowledge`] is what it needs to tell servers from
//! other processes. [`judge`](judge::judge()) decides from these facts alone, so tests can cover every decision with
//! invented facts. [`act`] signals a process only if it holds its pidfd and the process was judged again while the
//! pidfd was held. [`clients`] knows the configuration files of MCP clients, and [`adopt`] changes them.
//!
//! A server is an orphan when no process outside of its own tree holds the other ends of its stdin and stdout or has a
//! connection to it. Age, size, idleness and process 1 as its parent prove nothing. A holder that could not be read
//! counts as a possible holder.

pub mod act;
pub mod adopt;
pub mod clients;
pub mod facts;
pub mod judge;
pub mod knowledge;
pub mod scan;

pub use facts::{AcceptedConnection, Channel, DescriptorKind, Evidence, Facts, OtherEnd, Process, UnreadProcess};
pub use judge::verdict::{Finding, TreeRole, Verdict};
pub use judge::{JudgePolicy, judge};
pub use knowledge::Knowledge;
