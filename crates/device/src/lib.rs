//! Gives out memory: drivers, arenas, growth, limits, logical devices, the ledger, the offset
//! planner and placement. It knows nothing of tensors, ops or models.

mod buffer;
mod error;
pub mod plan;
mod workspace;

pub use buffer::{ALIGNMENT, Buffer};
pub use error::{Error, Result};
pub use workspace::{Borrowed, Span, Workspace};
