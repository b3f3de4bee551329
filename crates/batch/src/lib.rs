//! Merges waiting tasks into a batch and splits its result. It knows tensors, and nothing of
//! graphs, models or the wire.
//!
//! [`Queue`] is a state machine without a clock: every call is told the time. Its rules are those
//! of TensorFlow Serving (`shared_batch_scheduler.h`, `batching_session.cc`): a batch takes tasks
//! in their order until the next does not fit, and leaves when it is full or its oldest task has
//! waited for as long as it may. Beyond them:
//!
//! - With a timeout of 0 a batch waits for nothing but a free lane.
//! - Tasks of unlike shapes never share a batch, so that none can fail another.
//! - [`Order::Deadline`] runs the most urgent first, priorities before urgency, and age makes up
//!   for both, so that nothing waits for ever.
//! - What expires or is cancelled gives up its place at once.
//!
//! The invariants that [`Queue::check`] asserts: each task stands in exactly one kind, the kind of
//! its shapes; no kind is empty; every sum of rows is the sum of its tasks; each deadline is
//! listed once.
#![forbid(unsafe_code)]

mod error;
mod kind;
mod options;
mod parts;
mod queue;
mod rows;
mod time;

pub use error::{Error, Result};
pub use options::{Level, MixedPriority, Options, Order};
pub use parts::Parts;
pub use queue::{Arrival, Batch, First, Piece, Queue, Ready, Reason};
pub use rows::{Class, merge, n_rows, slice, split};
pub use time::Time;
