//! The interface of a backend: address space, pages behind it, copies.
//!
//! A driver is used through [`Region`](crate::Region), which owns a piece of its address space and
//! checks every call; the methods here are the contract between the two. Limits, counters and
//! injected failures are drivers around a driver, so an arena never asks which of them there are.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::account::Account;
use crate::error::Result;

/// A device's memory. Addresses are the device's own; on a device that is `host_visible` they are
/// pointers of this process.
///
/// Ranges given to a driver are aligned to its granule and lie inside one range that it reserved.
/// Every driver passes [`conformance::check`](crate::conformance::check).
pub trait Driver: fmt::Debug + Send + Sync {
    /// The properties of the device.
    fn properties(&self) -> &Properties;

    /// The bytes committed by everyone who uses this driver.
    fn held_bytes(&self) -> u64;

    /// The bytes that the driver took of the device for itself: no part of the bytes held, and not
    /// available.
    fn context_bytes(&self) -> u64 {
        0
    }

    /// The limit that it is, and the driver inside; `None` if it is none.
    fn limit(&self) -> Option<(&Arc<Account>, &Arc<dyn Driver>)> {
        None
    }

    /// The bytes that may still be committed now; never more than a `commit` would take.
    fn available_bytes(&self) -> u64;

    /// Takes address space with no memory behind it, and returns where it begins.
    ///
    /// # Errors
    /// If `bytes` exceeds the largest region, or the device has no such address space.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Puts zeroed memory behind a range that has none. On an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::Exhausted`](crate::Error::Exhausted) if a limit or the device refuses.
    ///
    /// # Safety
    /// `range` lies inside a range reserved from this driver, and none of it is committed.
    unsafe fn commit(&self, range: Range<u64>) -> Result<()>;

    /// Puts pages behind memory that is committed, where a driver leaves that to the first access.
    /// What is there stays as it is, also if somebody uses it meanwhile; a device that refuses
    /// leaves the pages to the first access after all.
    ///
    /// # Safety
    /// All of `range` is committed, and stays so until this returns.
    unsafe fn populate(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Takes the memory behind a range away. On an error nothing has changed.
    ///
    /// # Errors
    /// If the device refuses.
    ///
    /// # Safety
    /// All of `range` is committed, and nobody uses its bytes any more.
    unsafe fn decommit(&self, range: Range<u64>) -> Result<()>;

    /// Gives address space back, with the `held_bytes` bytes of memory that are still behind it.
    /// Never fails: what the device answers changes nothing any more.
    ///
    /// # Safety
    /// `range` is exactly what one `reserve` gave, `held_bytes` of it are committed, and nobody
    /// uses them any more.
    unsafe fn release(&self, range: Range<u64>, held_bytes: u64);

    /// Copies from the host to the device.
    ///
    /// # Errors
    /// If the device refuses.
    ///
    /// # Safety
    /// The `from.len()` bytes at `to` are committed, and nobody else uses them meanwhile.
    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()>;

    /// Copies from the device to the host.
    ///
    /// # Errors
    /// If the device refuses.
    ///
    /// # Safety
    /// The `to.len()` bytes at `from` are committed, and nobody writes to them meanwhile.
    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()>;

    /// Copies inside the device.
    ///
    /// # Errors
    /// If the device refuses.
    ///
    /// # Safety
    /// Both pieces of `bytes` bytes are committed, they do not overlap, and nobody else uses them.
    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()>;

    /// Waits until every copy asked for so far is done.
    ///
    /// # Errors
    /// If the device was lost, or one of those copies failed.
    fn sync(&self) -> Result<()>;
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The host: kernels of the CPU.
    Cpu,
    /// An accelerator with memory of its own.
    Gpu,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Cpu => "cpu",
            Kind::Gpu => "gpu",
        })
    }
}

/// The properties that a driver states of its device, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// The device's name, as in `cpu:0`.
    pub name: String,
    /// The device's kind.
    pub kind: Kind,
    /// The memory the device has.
    pub capacity_bytes: u64,
    /// Memory is committed in multiples of this power of two.
    pub granule_bytes: u64,
    /// The alignment that a kernel needs of a buffer; a power of two, at most the granule.
    pub alignment_bytes: u64,
    /// The largest region the device gives.
    pub region_bytes_max: u64,
    /// `true` if parts of a region can be committed. If not, a region is committed as a whole, so
    /// that an arena grows by adding regions.
    pub grows_in_place: bool,
    /// `true` if addresses are pointers of this process.
    pub host_visible: bool,
}

impl Properties {
    /// Panics if the figures contradict each other: a driver's bug.
    pub fn check(&self) {
        assert!(self.granule_bytes.is_power_of_two(), "{self:?}");
        assert!(self.alignment_bytes.is_power_of_two(), "{self:?}");
        assert!(self.alignment_bytes <= self.granule_bytes, "{self:?}");
        assert!(self.region_bytes_max >= self.granule_bytes, "{self:?}");
        assert_eq!(self.region_bytes_max % self.granule_bytes, 0, "{self:?}");
    }
}
