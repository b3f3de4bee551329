//! Gives out memory: drivers, arenas, growth, limits, logical devices, the ledger, the offset
//! planner and placement. It knows nothing of tensors, ops or models.

mod arena;
mod buffer;
pub mod conformance;
mod driver;
mod error;
mod host;
mod limit;
pub mod plan;
#[cfg(test)]
mod random;
mod region;
mod simulated;
mod workspace;

pub use arena::{Arena, Chunk, Growth, Stats};
pub use buffer::{ALIGNMENT, Buffer, Foreign};
pub use driver::{Driver, Kind, Properties};
pub use error::{Error, Result};
pub use host::Host;
pub use limit::Limited;
pub use region::Region;
pub use simulated::{Simulated, SimulatedOptions};
pub use workspace::{Borrowed, Span, Workspace};
