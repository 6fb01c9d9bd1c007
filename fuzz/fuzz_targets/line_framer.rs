#![no_main]
//! See `leash_protocol::fuzzing::line_framer`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leash_protocol::fuzzing::line_framer(bytes));
