//! Fuzzes `savedmodel::fuzz::data`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| savedmodel::fuzz::data(bytes));
