//! Tests of the protocol, one file for each part.

mod envelope;
mod era;
mod frame;
mod fuzz_bounded;
mod headers;
mod json;
mod messages;
mod sse;
