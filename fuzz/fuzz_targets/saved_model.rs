//! Fuzzes `savedmodel::fuzz::saved_model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| savedmodel::fuzz::saved_model(bytes));
