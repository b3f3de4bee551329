//! Gives out memory: drivers, arenas, growth, limits, logical devices and the
//! ledger. It knows nothing of tensors, ops or models.

mod account;
mod amount;
mod arena;
mod buffer;
pub mod conformance;
mod cuda;
mod driver;
mod error;
mod host;
mod kept;
mod ledger;
mod limit;
pub mod logical;
#[cfg(test)]
mod random;
mod region;
mod shared;
mod simulated;
mod space;
mod sync;
mod workspace;

pub use account::Account;
pub use amount::{Amount, parse_bytes};
pub use arena::{Arena, Chunk, Growth, Stats};
pub use buffer::{ALIGNMENT, Buffer, Foreign};
pub use cuda::{Cuda, cuda_gpus};
pub use driver::{Driver, Kind, Properties};
pub use error::{Error, Result};
pub use host::Host;
pub use ledger::{Category, Holder, Row};
pub use limit::Limited;
pub use region::Region;
pub use shared::{Cache, Piece, SharedArena};
pub use simulated::{Failures, Simulated, SimulatedOptions};
pub use space::{
    AHEAD_BYTES_MAX, Arenas, Booked, BookedVec, Books, Change, Charge, Event, EventSum, EventTotal,
    Faults, Idle, NameScope, Owner, Pages, Recent, Scope, Sharing, Snapshot, Space, SpaceOptions,
    Tally, booked_as, booked_on_host, booked_to, named, set_default_owner, settled, shared,
};
pub use workspace::{Borrowed, Home, Memory, Span, Workspace};
