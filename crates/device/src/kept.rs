//! Memory that stays somebody's while it moves.
//!
//! An arena moves memory by giving it back in one place and taking as much in another. In between
//! it is nobody's, and somebody else could take it. A [`Kept`] driver charges the limits on its way
//! to the device for at least what was promised, whether there is memory behind it at the time or
//! not, so that only the rest can be lost.

use std::ops::Range;
use std::sync::Arc;

use crate::account::Account;
use crate::driver::{Driver, Properties};
use crate::error::Result;
use crate::sync::Mutex;

/// A share of a driver that holds at least so many bytes for as long as it is there.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The device, without its limits.
    device: Arc<dyn Driver>,
    properties: Properties,
    /// The limits, which are charged here.
    accounts: Vec<Arc<Account>>,
    least_bytes: u64,
    /// The bytes with memory behind them.
    committed: Mutex<u64>,
}

impl Kept {
    /// Promises `least_bytes` of a driver.
    ///
    /// # Errors
    /// If a limit refuses.
    pub(crate) fn new(driver: Arc<dyn Driver>, least_bytes: u64) -> Result<Kept> {
        let properties = driver.properties().clone();
        let (mut device, mut accounts) = (driver, Vec::new());
        while let Some((account, inner)) = device.limit() {
            accounts.push(Arc::clone(account));
            device = Arc::clone(inner);
        }
        charge(&accounts, least_bytes)?;
        Ok(Kept { device, properties, accounts, least_bytes, committed: Mutex::new(0) })
    }

    /// The bytes promised.
    pub(crate) fn least_bytes(&self) -> u64 {
        self.least_bytes
    }

    /// The bytes promised that have no memory behind them.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.least_bytes.saturating_sub(*self.committed.lock())
    }

    /// The bytes charged when so many have memory behind them.
    fn charged(&self, committed: u64) -> u64 {
        committed.max(self.least_bytes)
    }

    fn refund(&self, bytes: u64) {
        self.accounts.iter().for_each(|account| account.refund(bytes));
    }

    /// Counts memory that is gone.
    fn shrink(&self, committed: &mut u64, bytes: u64) {
        let left = *committed - bytes;
        self.refund(self.charged(*committed) - self.charged(left));
        *committed = left;
    }
}

/// Charges all accounts, or none.
fn charge(accounts: &[Arc<Account>], bytes: u64) -> Result<()> {
    for (number, account) in accounts.iter().enumerate() {
        if let Err(error) = account.charge(bytes) {
            accounts[..number].iter().for_each(|account| account.refund(bytes));
            return Err(error);
        }
    }
    Ok(())
}

impl Drop for Kept {
    fn drop(&mut self) {
        let committed = *self.committed.lock();
        self.refund(self.charged(committed));
    }
}

impl Driver for Kept {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn held_bytes(&self) -> u64 {
        *self.committed.lock()
    }

    fn context_bytes(&self) -> u64 {
        self.device.context_bytes()
    }

    fn available_bytes(&self) -> u64 {
        let spare = self.spare_bytes();
        let free = self.accounts.iter().map(|account| account.free_bytes()).min();
        free.unwrap_or(u64::MAX).saturating_add(spare).min(self.device.available_bytes())
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.device.reserve(bytes)
    }

    unsafe fn commit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        // Held meanwhile, so that nobody counts on memory that is not there yet.
        let mut committed = self.committed.lock();
        let more = self.charged(*committed + bytes) - self.charged(*committed);
        charge(&self.accounts, more)?;
        // SAFETY: the caller's promise is passed on.
        let outcome = unsafe { self.device.commit(range) };
        match outcome {
            Ok(()) => *committed += bytes,
            Err(_) => self.refund(more),
        }
        outcome
    }

    unsafe fn populate(&self, range: Range<u64>) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.populate(range) };
    }

    unsafe fn decommit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        let mut committed = self.committed.lock();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.decommit(range) }?;
        self.shrink(&mut committed, bytes);
        Ok(())
    }

    unsafe fn release(&self, range: Range<u64>, held_bytes: u64) {
        let mut committed = self.committed.lock();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.release(range, held_bytes) };
        self.shrink(&mut committed, held_bytes);
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.write(to, from) }
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.read(from, to) }
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.copy(from, to, bytes) }
    }

    fn sync(&self) -> Result<()> {
        self.device.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Limited, Region, conformance};

    const MIB: u64 = 1 << 20;

    /// A device of 8 MiB with two limits, and a share of it that keeps 3 MiB.
    fn kept() -> ([Arc<Limited>; 2], Arc<Kept>) {
        let host = Arc::new(Host::new("cpu:0", 64 * MIB)) as Arc<dyn Driver>;
        let physical = Arc::new(Limited::new(host, "physical", 10 * MIB));
        let logical =
            Arc::new(Limited::new(Arc::clone(&physical) as Arc<dyn Driver>, "cpu:0", 8 * MIB));
        let kept = Kept::new(Arc::clone(&logical) as Arc<dyn Driver>, 3 * MIB).unwrap();
        ([physical, logical], Arc::new(kept))
    }

    #[test]
    fn what_is_promised_is_charged_whether_there_is_memory_or_not() {
        let (limits, kept) = kept();
        let held = || limits.each_ref().map(|one| one.held_bytes() / MIB);
        assert_eq!((held(), kept.spare_bytes()), ([3, 3], 3 * MIB));
        let take = |bytes| Region::committed(Arc::clone(&kept) as Arc<dyn Driver>, bytes);
        let first = take(2 * MIB).unwrap();
        assert_eq!((held(), kept.spare_bytes()), ([3, 3], MIB));
        let second = take(2 * MIB).unwrap();
        assert_eq!((held(), kept.held_bytes()), ([4, 4], 4 * MIB));
        drop(first);
        assert_eq!((held(), kept.available_bytes()), ([3, 3], 6 * MIB));
        // Others get the rest, and what moves is not theirs.
        let other = Region::committed(limits[1].clone(), 5 * MIB).unwrap();
        assert!(Region::committed(limits[1].clone(), MIB).is_err());
        assert!(take(2 * MIB).is_err(), "no more than was promised");
        drop(take(MIB).unwrap());
        drop((second, other));
        assert_eq!(held(), [3, 3]);
        drop(kept);
        assert_eq!(limits.each_ref().map(|one| one.held_bytes()), [0, 0]);
    }

    #[test]
    fn a_promise_that_a_limit_refuses_leaves_nothing() {
        let (limits, _kept) = kept();
        let more = Kept::new(Arc::clone(&limits[1]) as Arc<dyn Driver>, 6 * MIB);
        assert!(more.is_err());
        assert_eq!(limits.each_ref().map(|one| one.held_bytes() / MIB), [3, 3]);
    }

    #[test]
    fn a_driver_that_keeps_is_a_driver() {
        let host = Arc::new(Host::new("cpu:0", 64 * MIB)) as Arc<dyn Driver>;
        let limited = Arc::new(Limited::new(host, "cpu:0", 32 * MIB));
        conformance::check(&(Arc::new(Kept::new(limited, 2 * MIB).unwrap()) as Arc<dyn Driver>));
    }
}
