//! Fuzzes `api::fuzz::expansion`, and counts what decoding takes from the heap.
#![no_main]

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| api::fuzz::expansion(bytes, &|decode| {
    let region = Region::new(HEAP);
    decode();
    region.change().bytes_allocated
}));
