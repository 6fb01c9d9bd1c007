//! Tests of the protocol, one file for each part.

mod envelope;
mod era;
mod frame;
mod headers;
mod json;
mod messages;
mod sse;
