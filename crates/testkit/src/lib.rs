//! The test kit of leash: misbehaving programs (`zoo`), hosts to start them, and two witnesses of the living processes
//! that use no code of leash: the [`census`] (a FIFO that every process of a tree holds) and the outer [`cgroup`].
//!
//! A test sets a [`scene::Scene`], starts a [`host::Host`] on it, causes a fault, and asks both witnesses.

#![expect(clippy::disallowed_methods, reason = "the kit starts the programs that leash is tested with")]

pub mod census;
pub mod cgroup;
pub mod chaos;
pub mod client;
pub mod conformance;
pub mod control;
pub mod deps;
pub mod document;
pub mod events;
pub mod everything;
pub mod fixture;
pub mod gateway;
pub mod get;
pub mod ground;
pub mod host;
pub mod http;
pub mod instructions;
pub mod leash;
pub mod lines;
pub mod namespace;
pub mod openapi;
pub mod process;
pub mod pty;
pub mod puppet;
pub mod relay;
pub mod scene;
mod scratch;
pub mod sys;
pub mod tcp_client;
pub mod terminal_picture;
pub mod turn;
pub mod upstream;
pub mod user;
pub mod user_bus;
pub mod valgrind;
pub mod wait;

pub use scratch::Scratch;

use std::io::Write;

/// Prints a note about a test, such as why it was skipped.
pub fn note(text: &str) {
    // Written past the output capture of the test runner on purpose: a skipped test should be seen.
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}

/// Unwraps the value, or prints why the test cannot run here and returns from it.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(why) => {
                $crate::note(&format!("skipped: {why}"));
                return;
            }
        }
    };
}

/// Returns `stem` and 64 random bits. A pid would not be unique: tests in PID namespaces all have the same small ones.
pub fn unique(stem: &str) -> String {
    format!("{stem}-{:016x}", random())
}

/// 64 random bits.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("the kernel has random bytes");
    u64::from_ne_bytes(bytes)
}
