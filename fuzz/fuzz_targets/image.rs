//! Fuzzes `ops::fuzz::image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ops::fuzz::image(bytes));
