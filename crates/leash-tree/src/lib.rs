//! Process trees that never outlive their owner.
//!
//! The modules, each of which uses only those before it: [`platform`] is Linux as leash sees it; [`contain`] keeps a tree together;
//! [`ledger`] remembers what is alive and what became of the rest; [`owner`] knows what a tree lives for; [`tree`] starts, guards and
//! ends trees; [`session`] lists and ends them from outside, and holds them for a Rust host.

#[cfg(feature = "tokio")]
pub mod blocking;
pub mod contain;
#[cfg(any(test, feature = "testing"))]
pub mod leak;
pub mod ledger;
pub mod owner;
pub mod places;
pub mod platform;
#[cfg(feature = "rmcp")]
pub mod rmcp;
pub mod session;
pub mod tree;
