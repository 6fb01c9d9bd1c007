//! The parts of MCP that a proxy needs: envelopes, frames, eras and headers.
//!
//! Nothing here does I/O, and nothing keeps a message: functions take bytes and return borrows of them. leash forwards
//! the bytes that it received, and never serializes a message again.

pub mod envelope;
pub mod era;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
pub mod header_copies;
pub mod headers;
mod number;
mod object;
mod splice;
pub mod sse;
#[cfg(test)]
mod tests;
