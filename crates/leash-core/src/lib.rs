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
//! | `rmcp` (feature `rmcp`) | a client transport for the official Rust SDK |
//! | `SessionGuardLayer` (feature `tower`) | for servers: idle time, maximum age and a cap for Streamable HTTP sessions |
//! | `leak` (feature `testing`) | a guard for tests: fails one that leaves processes, tasks or descriptors behind |
//! | `check` (features `http` and `orphans`) | the leak test kit under `leash check` |
//! | [`session`], [`ledger`] | living sessions, ending them from outside, receipts of ended ones |
//!
//! # Features
//!
//! Sessions need none, and without features the library has no async runtime. `http` (default): the gateway and
//! `connect`, as `leash` has them. `orphans` (default): `clients` knows the configurations of MCP clients, `adopt`
//! changes them. `tokio`, `rmcp`, `tower`: see above.
//!
//! # Rules
//!
//! - A program that uses the library calls [`enter`] first in `main`: the library executes that program again as the
//!   keeper of a tree. A program that can't do that names another one in [`Places::program`](tree::Places::program);
//!   the `leash` binary works.
//! - The library prints nothing and reads no home directory. Of the environment it reads only PATH, to find the
//!   server's program.
//!
//! The modules: [`tree`] starts, watches and ends process trees; [`owner`] finds and watches their owners; [`ledger`]
//! records what is alive and keeps the receipts of the rest; `config` (feature `http`) reads the configuration of a
//! gateway.

#[cfg(feature = "orphans")]
pub mod adopt;
#[cfg(feature = "http")]
mod aside;
#[cfg(all(feature = "http", feature = "orphans"))]
pub mod check;
#[cfg(feature = "orphans")]
pub mod clients;
pub mod clock;
#[cfg(feature = "http")]
pub mod config;
pub mod duration;
pub mod event;
#[cfg(feature = "http")]
pub mod http;
pub mod id;
#[cfg(feature = "tower")]
pub mod layer;
#[cfg(any(test, feature = "testing"))]
pub mod leak;
pub mod ledger;
pub mod limits;
#[cfg(feature = "orphans")]
pub mod orphans;
pub mod owner;
#[cfg(any(feature = "http", feature = "tower"))]
pub mod protocol;
#[cfg(feature = "rmcp")]
pub mod rmcp;
#[cfg(test)]
mod scratch;
pub mod session;
pub mod tree;

#[cfg(feature = "tower")]
pub use layer::SessionGuardLayer;
pub use ledger::receipt::Receipt;
pub use session::Session;
pub use tree::{Places, Spec, Tree};

/// Closes every descriptor above stderr, for a program that does not need what it inherited. Call it after [`enter`]
/// and before the program opens any descriptor.
pub fn close_inherited() {
    tree::linux::close_from(3);
}

/// Runs this process as one of leash's own (keeper, supervisor or guard) if it was started as one. Call it first in
/// `main`, and return if it returns `true`.
pub fn enter() -> bool {
    tree::keeper::enter()
}
