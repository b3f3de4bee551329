//! Fuzzes `ops::fuzz::example`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ops::fuzz::example(bytes));
