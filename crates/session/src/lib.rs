//! One loaded version, ready to run: its signatures, the [`Queues`] of their tasks, and the
//! [`Engine`] that runs them. It knows nothing of other versions or the wire.
#![forbid(unsafe_code)]

mod batching;
mod engine;
#[cfg(any(test, feature = "fake"))]
#[doc(hidden)]
pub mod fake;
mod queues;
mod replicas;
mod servable;
mod signature;

pub use batching::{Batching, Priorities, QueueState, failure};
pub use engine::{Engine, LEVEL_MAX, Reply, Run, Urgency};
pub use queues::{QueueSettings, QueuedSignature, Queues, RowFacts, Settings, Singles};
pub use replicas::{Leaving, Member, Replicas};
pub use servable::{Servable, Weights};
pub use signature::{DEFAULT_SIGNATURE, Endpoint, Signature};
