//! Process trees and sessions that never outlive their owner: the library under `leash`.
//!
//! A host makes a [`Session`] per job, starts servers in it, speaks MCP through their streams, and ends it: when
//! [`Session::end`] has been awaited, every process is gone and a [`Receipt`] says so. A host that crashes, is killed, panics or
//! forgets has the same end without the receipt: it is in the hands of processes of leash's own, not of a destructor.
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
//!     // A server that starts a helper, which outlives everybody who does not look for it.
//!     let server = Spec::new(["sh", "-c", "setsid sleep 1000 & exec cat"]);
//!     job.start(server.named("files").grace(Duration::from_millis(100)))?;
//!     let receipt = job.end().wait();
//!     assert!(receipt.all_gone(), "{receipt:?}");
//!     std::fs::remove_dir_all(dir)?;
//!     Ok(())
//! }
//! ```
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | [`Session`] | servers that end together, with one receipt; `end()` is a future for any runtime, and has a blocking `wait()` |
//! | [`Tree`] | one server and everything it starts; its streams for std, and (feature `tokio`) for tokio |
//! | `rmcp` (feature `rmcp`) | a client transport for the official Rust SDK |
//! | `SessionGuardLayer` (feature `tower`) | for servers: idle time, greatest age and a cap for Streamable HTTP sessions |
//! | `leak` (feature `testing`) | a guard for tests: fails one that leaves processes, tasks or descriptors behind |
//! | `check` (features `http` and `orphans`) | the leak test kit under `leash check` |
//! | [`session`], [`ledger`] | who is alive, how to end them from outside, what became of the rest |
//!
//! # Features
//!
//! None is needed for sessions, and without features there is no async runtime below. `http` (default): the gateway and `connect`, as
//! `leash` has them. `orphans` (default): `clients` knows the configurations of MCP clients, `adopt` changes them. `tokio`, `rmcp`, `tower`: see above.
//!
//! # Rules
//!
//! - A program that uses the library calls [`enter`] first in `main`: the library executes that program again as the keeper of a tree.
//!   A program that can't do that names another one in [`Places::program`](tree::Places::program): the `leash` binary will do.
//! - The library prints nothing and reads no home directory; of the environment it looks at PATH alone, to find the server's program.
//!
//! The rooms: [`tree`] starts, guards and ends process trees; [`owner`] knows what they live for; [`ledger`] remembers what is
//! alive and what became of the rest; `config` (feature `http`) reads what a gateway is told.

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

/// Closes every descriptor above stderr, for a program that has no use for what it inherited. Call it after [`enter`] and before
/// anything was opened.
pub fn close_inherited() {
    tree::linux::close_from(3);
}

/// Runs this process as one of leash's own (keeper or guard) if it was started as one. Call it first in `main`, and return
/// when it answers `true`.
pub fn enter() -> bool {
    tree::keeper::enter()
}
