//! A CUDA driver that is not there, for tests: a library with the names of the driver API, whose
//! memory is the host's and whose rules are CUDA's.
//!
//! It is built twice over: as a shared library, which is loaded in the place of `libcuda.so`, and
//! as a crate with [`Fake`], by which a test loads it and says which GPUs there are, which call
//! fails, and what must have been given back.

mod calls;
mod control;
mod fake;
mod pages;
mod state;

pub use control::{Counters, Gpu};
pub use fake::Fake;
