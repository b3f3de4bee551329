//! Fuzzes `api::fuzz::predict`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| api::fuzz::predict(bytes));
