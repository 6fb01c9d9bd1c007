//! Just enough MCP to stand in the middle: envelopes, frames, eras and headers.
//!
//! Nothing here does I/O and nothing keeps a message: bytes come in, and what is known of them goes out as borrows. What leash
//! forwards are the bytes it received, never a message written again.

pub mod envelope;
pub mod era;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod header_copies;
pub mod headers;
mod number;
mod object;
mod splice;
pub mod sse;
#[cfg(test)]
mod tests;
