//! Process trees. leash starts each tree in a containment, watches its owners, ends it by one ladder and proves that it
//! is gone.
//!
//! ```text
//! host -> supervisor (subreaper) -> keeper (own session, subreaper) -> server -> its descendants
//! ```
//! Supervisor and keeper watch each other; whichever survives ends the tree.

mod budget;
pub mod contained_tree;
pub(crate) mod control;
pub mod default_name;
pub mod driver;
pub mod failure;
pub mod first_look;
pub(crate) mod freeze;
pub mod handle;
pub mod keeper;
pub(crate) mod kill;
pub(crate) mod launch;
pub mod machine;
pub mod spec;
pub(crate) mod stderr_copy;
pub(crate) mod strays;
mod supervised;
pub mod supervisor;
mod supervisor_handle;
mod supervisor_of_many;
pub mod sweep;
mod take_over;

pub use handle::{SupervisorLost, Tree};
pub use spec::Spec;
pub use supervisor_handle::SharedSupervisor;
