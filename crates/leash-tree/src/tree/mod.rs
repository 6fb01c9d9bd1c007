//! Process trees: started in a containment, watched over, ended by one ladder, proved to be gone.
//!
//! ```text
//! host -> supervisor (subreaper) -> keeper (own session, subreaper) -> server -> whatever it starts
//! ```
//! Supervisor and keeper watch each other; whichever survives ends the tree.

pub mod captive;
pub(crate) mod control;
pub mod error;
pub(crate) mod freeze;
pub mod handle;
pub mod keeper;
pub(crate) mod kill;
pub(crate) mod launch;
pub mod machine;
pub mod spec;
pub(crate) mod strays;
pub mod supervisor;
pub mod sweep;
pub mod warden;

pub use error::StartError;
pub use handle::{Tree, TreeError};
pub use spec::Spec;
