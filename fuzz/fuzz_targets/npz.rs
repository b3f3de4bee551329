//! Fuzzes `cli::fuzz::npz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cli::fuzz::npz(bytes));
