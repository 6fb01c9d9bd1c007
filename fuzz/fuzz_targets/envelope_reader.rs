#![no_main]
//! See `leash_protocol::fuzzing::envelope_reader`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leash_protocol::fuzzing::envelope_reader(bytes));
