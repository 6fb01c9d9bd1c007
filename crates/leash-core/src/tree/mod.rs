//! Process trees. leash starts each tree in a containment, watches its owners, ends it by one ladder and proves that it
//! is gone.
//!
//! ```text
//! host -> supervisor (subreaper) -> keeper (own session, subreaper) -> server -> its descendants
//! ```
//! Supervisor and keeper watch each other; whichever survives ends the tree.

pub(crate) mod captive;
pub(crate) mod command;
pub mod contain;
pub(crate) mod control;
pub mod error;
pub(crate) mod freeze;
pub mod handle;
pub mod identity;
pub(crate) mod keeper;
pub(crate) mod kill;
pub(crate) mod launch;
pub mod linux;
pub mod machine;
#[cfg(feature = "orphans")]
pub(crate) mod mappings;
pub(crate) mod poll;
pub mod proc;
pub mod resolve;
pub(crate) mod spawn;
pub mod spec;
pub(crate) mod strays;
pub mod supervisor;
pub(crate) mod warden;

pub use command::withhold;
pub use error::StartError;
pub use handle::{Tree, TreeError};
pub use spec::{Places, Spec};
