//! A limit, and what is held against it.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::sync::AtomicU64;

/// The bytes held by a device, a logical device or a model, and their limit.
///
/// Charging takes no lock, and what is charged never exceeds the limit, also while another thread
/// changes it.
#[derive(Debug)]
pub struct Account {
    name: String,
    limit: AtomicU64,
    held: AtomicU64,
    peak: AtomicU64,
}

impl Account {
    /// An account called `name` of at most `limit_bytes`.
    pub fn new(name: impl Into<String>, limit_bytes: u64) -> Account {
        Account {
            name: name.into(),
            limit: AtomicU64::new(limit_bytes),
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// The holder's name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most that may be held.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::SeqCst)
    }

    /// The bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// The most that was held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The bytes that may still be charged to this account.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes().saturating_sub(self.held_bytes())
    }

    /// Charges `bytes`.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if that is more than the limit leaves. Nothing is charged then.
    pub fn charge(&self, bytes: u64) -> Result<()> {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.limit_bytes());
        let before = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        let Ok(before) = before else { return Err(self.exhausted(bytes)) };
        let held = before + bytes;
        // A limit lowered meanwhile either sees this charge, or is seen here.
        if held > self.limit_bytes() {
            self.refund(bytes);
            return Err(self.exhausted(bytes));
        }
        self.peak.fetch_max(held, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a charge back.
    ///
    /// # Panics
    /// If less was charged: a bug.
    pub fn refund(&self, bytes: u64) {
        let before = self.held.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "{bytes} bytes given back of {before} held by {}", self.name);
    }

    /// Changes the limit from now on.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if more is held than the new limit allows: trim first. The limit is
    /// then as it was.
    pub fn set_limit(&self, limit_bytes: u64) -> Result<()> {
        let before = self.limit.swap(limit_bytes, Ordering::SeqCst);
        let held = self.held_bytes();
        if held > limit_bytes {
            self.limit.store(before, Ordering::SeqCst);
            let device = self.name.clone();
            return Err(Error::Exhausted {
                device,
                needed_bytes: held,
                free_bytes: 0,
                limit_bytes,
            });
        }
        Ok(())
    }

    #[cold]
    fn exhausted(&self, needed_bytes: u64) -> Error {
        Error::Exhausted {
            device: self.name.clone(),
            needed_bytes,
            free_bytes: self.free_bytes(),
            limit_bytes: self.limit_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_charged_never_exceeds_the_limit() {
        let account = Account::new("model", 100);
        account.charge(60).unwrap();
        let text = "model has no room for 41 bytes: 40 of 100 are free";
        assert_eq!(account.charge(41).unwrap_err().to_string(), text);
        assert!(account.charge(u64::MAX).is_err());
        account.charge(40).unwrap();
        account.refund(100);
        assert_eq!((account.held_bytes(), account.peak_bytes()), (0, 100));
    }

    #[test]
    fn threads_cannot_charge_past_a_limit_that_changes() {
        let account = Account::new("gpu:0", 1000);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for bytes in (1..100).cycle().take(10_000) {
                        if account.charge(bytes).is_ok() {
                            account.refund(bytes);
                        }
                    }
                });
            }
            scope.spawn(|| {
                for limit in (100..1000).cycle().take(10_000) {
                    if account.set_limit(limit).is_ok() {
                        assert_eq!(account.limit_bytes(), limit);
                    }
                }
            });
        });
        assert_eq!(account.held_bytes(), 0);
        assert!(account.peak_bytes() <= 1000);
    }
}
