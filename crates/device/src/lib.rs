//! Gives out memory: drivers, arenas, growth, limits, logical devices, the ledger, the offset
//! planner and placement. It knows nothing of tensors, ops or models.

mod account;
mod amount;
mod arena;
mod buffer;
pub mod conformance;
mod cuda;
mod driver;
mod error;
mod heap;
mod host;
mod kept;
mod ledger;
mod limit;
pub mod logical;
pub mod placement;
pub mod plan;
#[cfg(test)]
mod random;
mod region;
mod shared;
mod simulated;
mod space;
mod stack;
mod sync;
mod workspace;

pub use account::Account;
pub use amount::{Amount, parse_bytes};
pub use arena::{Arena, Chunk, Growth, Stats};
pub use buffer::{ALIGNMENT, Buffer, Foreign};
pub use cuda::{Cuda, cuda_gpus};
pub use driver::{Driver, Kind, Properties};
pub use error::{ConfigCode, Error, Result};
pub use heap::{
    Heap, HeapBytes, heap_bytes, purge_heap, settle_heap, share_heap, share_system_heap, trim_heap,
    use_heap_of_loads,
};
pub use host::Host;
pub use ledger::{Category, Holder, Row};
pub use limit::Limited;
pub use region::Region;
pub use shared::{Cache, Piece, SharedArena};
pub use simulated::{Failures, Pace, Simulated, SimulatedOptions};
pub use space::{
    AHEAD_BYTES_MAX, Booked, BookedVec, Change, Charge, EVENT_MICROS, Event, EventSum, EventTotal,
    Idle, NameScope, Owner, Pages, Recent, Scope, Snapshot, Space, SpaceOptions, Tally, booked_as,
    booked_on_host, booked_to, named, set_default_owner, settled, shared,
};
pub use stack::settle_stack;
pub use workspace::{Borrowed, Home, Memory, Span, Workspace};
