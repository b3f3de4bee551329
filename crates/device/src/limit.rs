//! A limit as a driver around a driver.
//!
//! Stacked, they are the limits of process, device, logical device and model: memory that is
//! committed through the innermost is counted and limited by each on the way out. What is held
//! never exceeds a limit, not even for a moment.

use std::ops::Range;
use std::sync::Arc;

use crate::account::Account;
use crate::driver::{Driver, Properties};
use crate::error::Result;

/// Passes everything on to another driver, as long as what is held through it stays in the limit.
#[derive(Debug)]
pub struct Limited {
    inner: Arc<dyn Driver>,
    properties: Properties,
    account: Arc<Account>,
}

impl Limited {
    /// A share of `inner`, called `name`, that holds at most `limit_bytes`.
    pub fn new(inner: Arc<dyn Driver>, name: impl Into<String>, limit_bytes: u64) -> Limited {
        let account = Arc::new(Account::new(name, limit_bytes));
        Limited::with(inner, account)
    }

    /// A share of `inner` that is charged to an account.
    pub fn with(inner: Arc<dyn Driver>, account: Arc<Account>) -> Limited {
        let name = account.name().to_owned();
        let properties = Properties { name, ..inner.properties().clone() };
        Limited { inner, properties, account }
    }

    /// The account that memory is charged to.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The most that may be held.
    pub fn limit_bytes(&self) -> u64 {
        self.account.limit_bytes()
    }

    /// The most that was held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.account.peak_bytes()
    }

    /// Changes the limit from now on.
    ///
    /// # Errors
    /// [`Error::Exhausted`](crate::Error::Exhausted) if more is held than the new limit allows:
    /// trim first. The limit is then as it was.
    pub fn set_limit(&self, limit_bytes: u64) -> Result<()> {
        self.account.set_limit(limit_bytes)
    }
}

impl Driver for Limited {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn held_bytes(&self) -> u64 {
        self.account.held_bytes()
    }

    fn context_bytes(&self) -> u64 {
        self.inner.context_bytes()
    }

    fn limit(&self) -> Option<(&Arc<Account>, &Arc<dyn Driver>)> {
        Some((&self.account, &self.inner))
    }

    fn available_bytes(&self) -> u64 {
        self.account.free_bytes().min(self.inner.available_bytes())
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.inner.reserve(bytes)
    }

    unsafe fn commit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        self.account.charge(bytes)?;
        // SAFETY: the caller's promise is passed on.
        let committed = unsafe { self.inner.commit(range) };
        if committed.is_err() {
            self.account.refund(bytes);
        }
        committed
    }

    unsafe fn populate(&self, range: Range<u64>) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.populate(range) };
    }

    unsafe fn decommit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.decommit(range) }?;
        self.account.refund(bytes);
        Ok(())
    }

    unsafe fn release(&self, range: Range<u64>, held_bytes: u64) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.release(range, held_bytes) };
        self.account.refund(held_bytes);
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.write(to, from) }
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.read(from, to) }
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.copy(from, to, bytes) }
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::{Host, Region, conformance};

    const MIB: u64 = 1 << 20;

    fn stack(limits: &[u64]) -> Vec<Arc<Limited>> {
        let mut inner: Arc<dyn Driver> = Arc::new(Host::new("cpu:0", 64 * MIB));
        let mut all = Vec::new();
        for (level, limit) in limits.iter().enumerate() {
            let limited = Arc::new(Limited::new(inner, format!("level {level}"), *limit));
            inner = limited.clone();
            all.push(limited);
        }
        all
    }

    /// Commits `bytes` through the innermost of `limits`; the level that refuses, if any.
    fn refused_by(limits: &[u64], bytes: u64) -> Option<String> {
        let all = stack(limits);
        let region = Region::committed(all.last().unwrap().clone(), bytes);
        let held = all.iter().map(|l| l.held_bytes());
        match region {
            Ok(_region) => {
                assert!(held.into_iter().all(|held| held == bytes));
                None
            }
            Err(Error::Exhausted { device, .. }) => {
                assert!(held.into_iter().all(|held| held == 0), "a refused commit leaves nothing");
                Some(device)
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_level_limits_what_is_held_through_it() {
        assert_eq!(refused_by(&[8 * MIB, 4 * MIB], 4 * MIB), None);
        assert_eq!(refused_by(&[8 * MIB, 4 * MIB], 5 * MIB).as_deref(), Some("level 1"));
        assert_eq!(refused_by(&[2 * MIB, 4 * MIB], 3 * MIB).as_deref(), Some("level 0"));
        assert_eq!(refused_by(&[u64::MAX, u64::MAX], 65 * MIB).as_deref(), Some("cpu:0"));
    }

    #[test]
    fn shares_of_one_device_count_together() {
        let device = Arc::new(Limited::new(stack(&[64 * MIB])[0].clone(), "gpu:0", 6 * MIB));
        let one: Arc<dyn Driver> = Arc::new(Limited::new(device.clone(), "a", 4 * MIB));
        let two: Arc<dyn Driver> = Arc::new(Limited::new(device.clone(), "b", 4 * MIB));
        let first = Region::committed(one, 4 * MIB).unwrap();
        assert_eq!((two.available_bytes(), device.held_bytes()), (2 * MIB, 4 * MIB));
        assert!(Region::committed(two.clone(), 3 * MIB).is_err());
        drop(first);
        assert!(Region::committed(two, 3 * MIB).is_ok());
        assert_eq!((device.held_bytes(), device.peak_bytes()), (0, 4 * MIB));
    }

    #[test]
    fn a_limit_below_what_is_held_is_refused() {
        let limited = stack(&[8 * MIB])[0].clone();
        let region = Region::committed(limited.clone(), 3 * MIB).unwrap();
        assert!(limited.set_limit(2 * MIB).is_err());
        assert_eq!(limited.limit_bytes(), 8 * MIB);
        limited.set_limit(3 * MIB).unwrap();
        assert_eq!(limited.available_bytes(), 0);
        drop(region);
        limited.set_limit(0).unwrap();
    }

    #[test]
    fn a_limited_driver_is_a_driver() {
        conformance::check(&(stack(&[48 * MIB, 32 * MIB])[1].clone() as Arc<dyn Driver>));
    }
}
