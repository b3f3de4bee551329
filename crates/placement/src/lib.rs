//! Placement: which version goes to which device, what it may take there, and which version yields.
//!
//! [`adapt`] is a pure function from needs, limits, pins and replicas to steps: it leaves what is
//! placed where it is if everything fits that way, and spreads models so that no device idles while
//! another has several. [`fleet`] asks it for versions that come one after another.
//!
//! [`Placement`] makes its figures: from our own devices ([`OwnDevices`]), and from GPUs that only
//! TensorFlow can use ([`ExternalDevices`]). A server asks it for [`leases`](Placement::lease) as
//! versions arrive, and for [`changes`](Placement::changes) when devices or models have changed;
//! [`plan`](Placement::plan) says where a whole fleet goes before anything of it is served.

#![forbid(unsafe_code)]

mod adapt;
mod board;
mod claim;
#[cfg(test)]
mod exact;
mod external;
mod fleet;
mod group;
mod models;
mod own;
mod placement;
#[cfg(test)]
mod random;
mod refusal;
mod resident;
#[cfg(test)]
mod testing;
mod together;

pub use adapt::{Seat, Step, adapt};
pub use claim::{Claim, Demand, Needed, Taken, WeightKey, Within};
pub use external::{
    Admission, Booked, ExternalDevice, ExternalDevices, ExternalNeed, GpuUsage, ModelUsage,
    Monitor, ProcessUsage, Usage, WorkerUsage,
};
pub use fleet::{Fleet, fleet};
pub use group::Lease;
pub use models::{Models, Replicas, Rule, ServedModel};
pub use own::{OwnDevice, OwnDevices, Reservation};
pub use placement::{Placement, Plan};
pub use refusal::{Figures, Refusal};
pub use resident::{Change, ChangeKind, Resident, Version, Way};
