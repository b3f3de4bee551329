//! Fuzzes `api::fuzz::target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| api::fuzz::target(bytes));
