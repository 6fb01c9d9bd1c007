#![no_main]
//! See `leash_core::protocol::fuzzing::sse_splitter`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leash_core::protocol::fuzzing::sse_splitter(bytes));
