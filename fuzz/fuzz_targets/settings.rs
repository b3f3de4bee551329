//! Fuzzes `config::fuzz::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::fuzz::settings(bytes));
