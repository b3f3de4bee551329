//! One loaded version, ready to run: its signatures, the [`Engine`] that runs them, and the error
//! that any engine fails with. It knows nothing of other versions or the wire.
#![forbid(unsafe_code)]

mod batching;
mod engine;
mod error;
mod servable;
mod signature;

pub use batching::{Batching, Priorities, QueueState, failure};
pub use engine::{Engine, LEVEL_MAX, Reply, Run, Urgency};
pub use error::{Error, Result};
pub use servable::{Servable, Weights};
pub use signature::{DEFAULT_SIGNATURE, Endpoint, Signature};
