//! Fuzzes `savedmodel::fuzz::warmup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| savedmodel::fuzz::warmup(bytes));
