//! For leash's own tests: misbehaving programs (`zoo`), hosts to start them, and two witnesses of who is alive that do not
//! come from leash: the [`census`] (a FIFO that every process of a tree holds) and the outer [`cgroup`].
//!
//! A test sets a [`scene::Scene`], starts a [`host::Host`] on it, does harm, and asks both witnesses.

#![expect(clippy::disallowed_methods, reason = "the kit starts what leash is tested with")]

pub mod census;
pub mod cgroup;
pub mod chaos;
pub mod client;
pub mod conformance;
pub mod control;
pub mod deps;
pub mod events;
pub mod everything;
pub mod fixture;
pub mod gateway;
pub mod get;
pub mod ground;
pub mod host;
pub mod http;
pub mod leash;
pub mod lines;
pub mod namespace;
pub mod process;
pub mod pty;
pub mod puppet;
pub mod relay;
pub mod scene;
mod scratch;
pub mod sys;
pub mod tcp_client;
pub mod turn;
pub mod upstream;
pub mod user;
pub mod user_bus;
pub mod valgrind;
pub mod wait;

pub use scratch::Scratch;

use std::io::Write;

/// Says something about a test that is not its verdict, such as why it was skipped.
pub fn note(text: &str) {
    // Written past the capture of the test runner on purpose: a skipped test should be seen.
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}

/// The value, or the end of the test with the printed reason why it cannot run here.
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

/// `stem` and 64 random bits. Process numbers would do for a name, were it not for tests in namespaces, which all have the same small ones.
pub fn unique(stem: &str) -> String {
    format!("{stem}-{:016x}", random())
}

/// 64 random bits.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("the kernel has random bytes");
    u64::from_ne_bytes(bytes)
}
