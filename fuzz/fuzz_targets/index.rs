//! Fuzzes `savedmodel::fuzz::index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| savedmodel::fuzz::index(bytes));
