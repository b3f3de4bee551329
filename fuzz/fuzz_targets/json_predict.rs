//! Fuzzes `json::fuzz::json_predict`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| json::fuzz::json_predict(bytes));
