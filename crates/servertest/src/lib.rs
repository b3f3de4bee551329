//! A running server and its clients, for tests: a process that listens on ports of its own, the few
//! words of HTTP that tests need, gRPC's clients, and waits that end with what they wait for.
//!
//! States of models are waited for at the server (`?wait=`), lines of the log at the pipe. Pages
//! that tell nobody of their changes are looked at again after a pause (`until`).
#![forbid(unsafe_code)]

mod http;
mod models;
mod ports;
mod server;

pub use http::ask;
pub use models::{check_half_plus_two, copy, half_plus_two, model_with_versions, root};
pub use server::Server;

use std::time::{Duration, Instant};

/// The longest time that anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The time between two looks at what tells nobody of its changes.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until something is so.
///
/// # Panics
/// If it is not so before `PATIENCE` ends.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(what, || is_so().then_some(()));
}

/// Looks until there is something, and gives it.
///
/// # Panics
/// If there is nothing before `PATIENCE` ends.
#[track_caller]
pub fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < end, "never saw that {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// Runs asynchronous work on this thread.
///
/// # Panics
/// If there can be no runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(work)
}
