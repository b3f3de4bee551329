//! `Faults`: an allocation that is to be refused.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::sync::AtomicU64;

/// The allocation of a device that is refused, so that tests can exhaust memory at any point.
/// Allocations of spaces set aside of the device count too.
#[derive(Debug, Default)]
pub struct Faults {
    /// The number of the allocation from now on, the next one being 1; none if 0.
    fail_in: AtomicU64,
}

impl Faults {
    /// Lets the `n`-th allocation from now on be refused, the next one being 1; the others are as
    /// ever. With 0 none is.
    pub fn fail_allocation(&self, n: u64) {
        self.fail_in.store(n, Ordering::Relaxed);
    }

    /// The number of allocations that succeed from now on until the one to be refused; `None` if it
    /// was refused already, or none is to be.
    pub fn fails_in(&self) -> Option<u64> {
        self.fail_in.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Counts an allocation of `bytes` of a device, and refuses it if it is its turn.
    ///
    /// # Errors
    /// If it is to be refused.
    pub(super) fn count(&self, device: &str, bytes: u64) -> Result<()> {
        match self.fail_in.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => self.count_down(device, bytes),
        }
    }

    #[cold]
    fn count_down(&self, device: &str, bytes: u64) -> Result<()> {
        let next = |n: u64| n.checked_sub(1);
        let before = self.fail_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if before != Ok(1) {
            return Ok(());
        }
        let (device, call) = (device.to_owned(), "allocate");
        let reason = format!("injected failure for {bytes} bytes");
        Err(Error::Driver { device, call, reason })
    }
}
