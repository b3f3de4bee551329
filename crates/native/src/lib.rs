//! The [`Engine`](session::Engine) on our own graph executor. It knows nothing of the wire or of
//! versions.
//!
//! Loading a SavedModel goes so: trace every signature; find out which variables they use and which
//! they write; read those, and only those, from the checkpoint; run the init op; build a program
//! for each signature, with the weights bound.
#![forbid(unsafe_code)]

mod engine;
mod error;

pub use engine::{Executor, NativeEngine};
