//! Process trees and sessions that never outlive their owner: the library under `leash`.
//!
//! The rooms: [`tree`] starts, guards and ends process trees; [`owner`] knows what they live for; [`ledger`] remembers what is
//! alive and what became of the rest; `config` (feature `http`) reads what a gateway is told;
//! `clients` (feature `orphans`) knows other programs' configurations, and `adopt` changes them. The library prints nothing and
//! reads no home directory; of the environment it looks at PATH alone, to find the server's program.
//!
//! A program that uses it must call [`enter`] first in `main`: the library executes that program again as the keeper of a tree.

#[cfg(feature = "orphans")]
pub mod adopt;
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
pub mod ledger;
pub mod limits;
pub mod owner;
#[cfg(feature = "http")]
pub mod protocol;
#[cfg(test)]
mod scratch;
pub mod session;
pub mod tree;

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
