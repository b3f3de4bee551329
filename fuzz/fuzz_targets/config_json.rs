//! Fuzzes `config::fuzz::config_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::fuzz::config_json(bytes));
