//! Owns the lanes of every device and picks which batch runs next, on which replica. It knows
//! nothing of models or the wire.
//!
//! [`Agenda`] decides, without a clock or threads: what waits for the lanes of one device, and what
//! runs next. [`Lanes`] puts a lock, a clock and threads around it. [`nearest`] picks the replica
//! that answers first.
#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "means and shares are for people")]

mod agenda;
mod costs;
mod error;
mod lanes;
mod memory;
mod needs;
mod options;
mod replicas;
mod run;
pub mod simulate;
mod stats;
mod sync;
mod task;

#[cfg(test)]
#[path = "lanes/tests.rs"]
mod lanes_tests;
#[cfg(test)]
mod shuttled;

pub use agenda::{
    Admission, Agenda, Ended, Forecast, LaneSnapshot, ModelId, Next, QueueId, QueueSnapshot, Turn,
    Turned,
};
pub use costs::Costs;
pub use error::{Error, Refusal};
pub use lanes::{Lanes, Share};
pub use options::{Need, Options, QueueOptions};
pub use replicas::{Replica, nearest};
pub use stats::Stats;
pub use task::{Blame, Control, Failure, Fault, Reply, Task, Work};
