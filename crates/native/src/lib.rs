//! The [`Engine`](session::Engine) on our own graph executor. It knows nothing of the wire or of
//! versions.
//!
//! [`load`] makes a servable of a SavedModel: it traces every signature, finds out which variables
//! they use and which they write, reads those and only those from the checkpoint, runs the init op,
//! and builds a program for each signature with the weights bound.
#![forbid(unsafe_code)]
#![allow(clippy::wildcard_enum_match_arm, reason = "there are sixteen codes")]

mod assets;
mod engine;
mod error;
mod fitting;
mod load;
pub mod measure;
mod pace;
mod prepare;
mod programs;
mod queues;
mod rehearsal;
mod rows;
mod tables;
mod variables;

pub use engine::{Executor, NativeEngine};
pub use load::{Loaded, Opened, Options, load};
pub use pace::{Pace, Rates};
pub use rehearsal::{Batch, Need, PlanNeed, Rehearsal, Sizes};
pub use variables::WeightKey;
