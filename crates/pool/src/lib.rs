//! The compute threads that kernels share: spin briefly, then park. The pool does not know what is
//! computed.
//!
//! `Pool::run` splits one kernel call into numbered tasks that the caller and the workers draw from
//! one counter. There is one job at a time: a second caller, another lane or a task that calls
//! `run` itself, computes its tasks alone, which is also the fastest when all cores are busy.
//!
//! - `pool.rs`: the pool as callers see it.
//! - `gate.rs`: how a job is opened, joined, closed and left.
//! - `bench.rs`: where threads wait.
//! - `worker.rs`: what a thread does between jobs.
//! - `chunks.rs`: tasks that each write their own part of a slice.
//! - `stop.rs`: when a run should end though it is not done.
//! - `watch.rs`: how code deep inside of a kernel learns it.
//!
//! When the run of a thread that calls the pool should stop, tasks that have not begun are left
//! out. Their results are missing then: whoever runs kernels asks the same [`Stop`] before anybody
//! reads what they wrote.

mod bench;
mod chunks;
mod gate;
mod pool;
mod stop;
mod watch;
mod worker;

pub use pool::{Lane, Pool};
pub use stop::{Reason, Stop};
pub use watch::{OPERATIONS_BETWEEN_LOOKS, Watch, pace};
