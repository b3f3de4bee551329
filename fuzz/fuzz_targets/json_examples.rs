//! Fuzzes `api::fuzz::json_examples`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| api::fuzz::json_examples(bytes));
