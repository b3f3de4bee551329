//! Reads what may be anything as `saved_model`.
#![no_main]

#[allow(dead_code, reason = "each target calls one of them")]
#[path = "../harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::saved_model(bytes));
