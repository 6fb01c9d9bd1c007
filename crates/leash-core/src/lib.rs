//! Process trees and sessions that never outlive their owner: the library under `leash`.
//!
//! A host makes a [`Session`] per job, starts servers in it, speaks MCP through their streams, and ends it. When
//! [`Session::end`] has been awaited, every process is gone and a [`Receipt`] says so. If the host crashes, is killed,
//! panics or forgets to end it, the servers end in the same way, without the receipt for the host: separate processes
//! of leash end them, not a destructor.
//!
//! ```standalone_crate
//! use std::time::Duration;
//! use leash_core::{Places, Session, Spec};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     if leash_core::enter() {
//!         return Ok(());
//!     }
//!     let dir = std::env::temp_dir().join(format!("leash-lib-{}", std::process::id()));
//!     let mut job = Session::new(Places::below(&dir));
//!     // A server that starts a helper in its own session: ending only the server would leave the helper.
//!     let server = Spec::new(["sh", "-c", "setsid sleep 1000 & exec cat"]);
//!     job.start(server.named("files").grace(Duration::from_millis(100)))?;
//!     let receipt = job.end().wait();
//!     assert!(receipt.all_gone(), "{receipt:?}");
//!     std::fs::remove_dir_all(dir)?;
//!     Ok(())
//! }
//! ```
//!
//! # Contents
//!
//! | | |
//! |---|---|
//! | [`Session`] | servers that end together, with one receipt; `end()` is a future for any runtime, and has a blocking `wait()` |
//! | [`Tree`] | one server and everything it starts; its streams for std, and (feature `tokio`) for tokio |
//! | [`receipt`] | what became of a session, and where receipts are kept |
//! | `rmcp` (feature `rmcp`) | a client transport for the official Rust SDK |
//! | `SessionGuardLayer` (feature `tower`) | for servers: idle time, maximum age and a cap for Streamable HTTP sessions |
//! | `leak` (feature `testing`) | a guard for tests: fails one that leaves processes, tasks or descriptors behind |
//!
//! No feature is needed for sessions, and without features there is no async runtime below.
//!
//! # Rules
//!
//! - A program that uses the library calls [`enter`] first in `main`: the library executes that program again as the keeper of a tree.
//!   A program that can't do that names another one in [`Places::program`]: the `leash` binary will do.
//! - The library prints nothing and reads no home directory; of the environment it looks at PATH alone, to find the server's program.
//!
//! The parts are crates of their own, for programs that need more: `mcp-leash-tree` (process trees and the ledger), `mcp-leash-gateway`
//! (`leash serve`), `mcp-leash-connect`, `mcp-leash-orphans`, `mcp-leash-check`. Their APIs change with every version.

pub use leash_model::receipt::Receipt;
#[cfg(feature = "tower")]
pub use leash_tower::SessionGuardLayer;
pub use leash_tree::places::Places;
pub use leash_tree::session::Session;
pub use leash_tree::tree::{Spec, Tree};

#[cfg(feature = "tower")]
pub use leash_tower as layer;
#[cfg(feature = "testing")]
pub use leash_tree::leak;
#[cfg(feature = "rmcp")]
pub use leash_tree::rmcp;

/// The end of a session, its failures, and its streams.
pub mod session {
    #[cfg(feature = "tokio")]
    pub use leash_tree::session::AsyncStreams;
    pub use leash_tree::session::{SessionEnding, SessionError};
}

/// A tree's failures, and the terms it runs under.
pub mod tree {
    pub use leash_model::containment::{Containment, ContainmentWish, Refusal};
    pub use leash_model::error::Cause;
    pub use leash_model::owner::{Owner, OwnerError, OwnerWish, Role};
    pub use leash_model::start_failure::{CommandOrigin, StartFailure};
    pub use leash_tree::contain::caps::Caps;
    pub use leash_tree::contain::slice::SharedBudgets;
    pub use leash_tree::tree::SupervisorLost;
}

/// The receipts of ended sessions.
pub mod receipt {
    pub use leash_model::receipt::*;
    pub use leash_tree::ledger::receipts::{find, read};
}

/// Closes every descriptor above stderr, for a program that does not need what it inherited. Call it after [`enter`]
/// and before the program opens any descriptor.
pub fn close_inherited() {
    leash_tree::platform::linux::close_inherited();
}

/// Runs this process as one of leash's own (keeper, supervisor or guard) if it was started as one. Call it first in
/// `main`, and return if it returns `true`.
pub fn enter() -> bool {
    leash_tree::tree::keeper::enter(&[])
}
