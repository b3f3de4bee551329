//! The binary: flags → config → wiring; the subcommands. It knows everything and decides nothing.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "this crate talks to the terminal and reads the environment; there are many dtypes"
)]

/// Prints a line to standard output. Whoever reads it may have had enough: that is no error.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stdout(), $($arg)*));
    }};
}

mod active;
mod api_keys;
mod arguments;
mod arrange;
mod banner;
mod batching;
mod channel_arguments;
mod cli;
mod commands;
mod config;
mod control;
mod devices;
mod discover;
mod engines;
mod external;
mod fence;
mod flags;
mod loader;
mod loads;
mod logging;
mod memory;
mod metrics;
mod model_config;
mod monitoring;
#[doc(hidden)]
pub mod npz;
mod replicas;
mod request_log;
mod sample;
mod scheduler;
mod settle;
mod signals;
mod source;
mod ssl_config;
mod warmup;
mod warmups;

pub use cli::{Persona, main};

#[global_allocator]
static HEAP: device::Heap = device::Heap;
