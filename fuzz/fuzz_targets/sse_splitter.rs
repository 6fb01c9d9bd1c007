#![no_main]
//! See `leash_protocol::fuzzing::sse_splitter`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leash_protocol::fuzzing::sse_splitter(bytes));
