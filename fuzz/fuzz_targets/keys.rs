//! Fuzzes `config::fuzz::keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::fuzz::keys(bytes));
