//! Every package of `cargo xtask dist`: it is installed into an empty place, plays `leash demo`, keeps the promise under
//! a host that is killed, and is removed. Then nothing is left.
//!
//! `cargo xtask test` makes the packages and names their directory in LEASH_DIST. Without it, the tests are skipped.

#![expect(clippy::disallowed_methods, reason = "package managers run outside of the leash")]

mod deb;
mod dist;
mod guide;
mod image;
mod kubernetes;
mod launcher;
mod manifest;
mod npm;
mod pip;
mod real_host;
mod tarball;
