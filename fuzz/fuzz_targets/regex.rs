//! Fuzzes `ops::fuzz::regex`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ops::fuzz::regex(bytes));
