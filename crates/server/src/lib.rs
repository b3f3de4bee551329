//! Flags → config → wiring: a serving process. It knows everything and decides nothing.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "this crate talks to the terminal and reads the environment; there are many dtypes"
)]

/// Prints a line to standard output. A reader that has had enough is no error.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stdout(), $($arg)*));
    }};
}

mod active;
mod api_keys;
mod arrange;
mod batching;
mod check;
mod commands;
mod control;
mod devices;
mod external;
mod loader;
mod loads;
mod logging;
mod memory;
mod metrics;
mod request_log;
mod scheduler;
mod signals;
mod source;
mod ssl_config;
mod warmup;
mod warmups;

pub use check::{Finding, Verdict, config_findings, machine_findings};
pub use commands::devices::{devices_page, find as find_devices};
pub use commands::serve::{Refused, main as serve};
pub use devices::{Devices, Logical};
pub use external::{External, names as gpu_names};
pub use logging::start as start_logging;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;
