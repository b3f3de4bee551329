//! Fuzzes `ops::fuzz::compressed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ops::fuzz::compressed(bytes));
