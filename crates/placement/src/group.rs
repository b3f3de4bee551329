//! `DeviceGroup`: devices of one sort at a moment, as the board sees them.

use std::sync::Arc;

use device::Owner;

use crate::claim::{Claim, Taken};
use crate::refusal::Refusal;

/// Devices of one sort at a moment: our own, or the GPUs that only TensorFlow can use. Devices are
/// named by their index.
pub(crate) trait DeviceGroup {
    /// The names of the devices.
    fn names(&self) -> Vec<String>;

    /// The entry of a version to a device.
    fn entry(&self, claim: &Claim, device: usize) -> Entry;

    /// The bytes that versions may have of a device when nobody holds anything.
    fn room(&self, device: usize) -> u64;

    /// The bytes of a device that nobody holds or was promised.
    fn free(&self, device: usize) -> u64;

    /// The bytes that a version holds of a device that it is on.
    fn held(&self, claim: &Claim, device: usize) -> Held;

    /// The bytes that a version would take of a device that it is not on; `None` if its own limit
    /// there is too small.
    fn takes(&self, claim: &Claim, device: usize) -> Option<Taken>;

    /// Returns whether versions of a model share its reservation on these devices.
    fn shares_reservations(&self) -> bool;

    /// Promises a version so many bytes of each of some devices, on which it is about to be loaded.
    fn promise(&self, claim: &Claim, on: &[(usize, u64)]) -> Result<Vec<Lease>, Box<Refusal>>;

    /// The refusal of a version that has no room on a device.
    fn refusal(&self, claim: &Claim, device: usize) -> Refusal;
}

/// The entry of a version to a device: open, closed, or for some cases only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It may.
    Open,
    /// It may if it may be on no device that is open to it.
    Fallback,
    /// It may serve there for a moment while others change places.
    Parking,
    /// It may not.
    Closed,
}

/// The bytes that a version holds of a device that it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its own bytes.
    pub(crate) bytes: u64,
    /// The bytes that would be free if it went.
    pub(crate) freed_bytes: u64,
    /// The bytes that its runs were promised.
    pub(crate) runs: u64,
}

/// A device that a version may be loaded on.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The device's name.
    pub device: String,
    /// The owner of its memory there; `None` for a version that is loaded in a worker, whose memory
    /// is booked when it is known.
    pub owner: Option<Arc<Owner>>,
}
