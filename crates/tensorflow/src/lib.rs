//! The [`Engine`](session::Engine) on the user's own libtensorflow, in worker processes. It knows
//! nothing of the wire or of versions.
//!
//! [`Workers`] makes servables. A model without settings of its own shares a worker; one with
//! settings has its own, so that limits hold for it alone, a crash stays inside, and all memory
//! comes back when it ends. A worker is our own program started anew ([`worker_main`]); it loads
//! the library, which is never linked. Tensors lie in memory that both share ([`Options`] says how
//! much), and short messages through rings in shared memory say where; a socket between them only
//! tells each that the other is gone.
#![allow(
    clippy::cast_possible_truncation,
    reason = "the C API counts in `int`; what is narrowed was checked"
)]

mod area;
mod bell;
mod capi;
mod config;
mod direct;
mod engine;
mod error;
mod find;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod inside;
mod load;
mod nvml;
mod options;
mod process;
mod queues;
mod ring;
mod sandbox;
mod snapshot;
mod tensors;
mod visible;
mod wire;
mod worker;

pub use config::{GpuOptions, Threads, session_config};
#[doc(hidden)]
pub use direct::Direct;
pub use error::{Error, Result};
pub use find::{HOW_TO_INSTALL, Places, find};
pub use inside::main as worker_main;
pub use load::{Needed, Request, Workers};
pub use nvml::{Gpu, GpuProcess, Nvml};
pub use options::{MemoryLimit, ModelSettings, Options, Placement, Program, Renewal, Sandbox};
pub use sandbox::lacking as sandbox_lacks;
pub use snapshot::{ModelSnapshot, ModelState, WorkerSnapshot, WorkerState};
pub use visible::visible;
