//! Fuzzes `tensorflow::fuzz::worker`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tensorflow::fuzz::worker(bytes));
