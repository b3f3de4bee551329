//! Reads what may be anything as `data`.
#![no_main]

#[allow(dead_code, reason = "each target calls one of them")]
#[path = "../harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::data(bytes));
