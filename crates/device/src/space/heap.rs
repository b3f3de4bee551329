//! `HeapCharges`: what a space has on the process heap.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::account::Account;
use crate::error::Result;
use crate::sync::AtomicU64;

/// The bytes of the heap that are charged to a space: small buffers of a host, and what is no
/// buffer at all, as strings.
#[derive(Debug)]
pub(super) struct HeapCharges {
    /// The logical device, and the physical one.
    accounts: Vec<Arc<Account>>,
    /// Smaller buffers come from the heap; none if 0.
    below_bytes: u64,
    /// The bytes that were given back since the heap last returned its free pages.
    freed_bytes: AtomicU64,
    /// The bytes that were taken since the heap was last looked at near the limit.
    taken_bytes: AtomicU64,
}

/// Buffers of the host that are smaller come from the heap.
const BELOW_BYTES: u64 = 64 << 10;

/// Before a space takes `LARGE_BYTES` at once, the heap returns its free pages to the system if
/// `FREED_BYTES_MAX` or more were freed there: pages that the heap keeps for later are in no books.
const LARGE_BYTES: u64 = 4 << 20;
const FREED_BYTES_MAX: u64 = 16 << 20;

/// A space that has less than this share of its limit left is near it. The heap is then looked at
/// whenever so many bytes were taken, in pieces of any size, and returns its free pages if there
/// are so many of them. Pages may have been freed that were in no books either.
const NEAR_SHARE: u64 = 4;
const LOOK_BYTES: u64 = 4 << 20;
const PURGEABLE_BYTES_MAX: u64 = 8 << 20;

impl HeapCharges {
    /// Charges to `accounts` for a space whose small buffers come from the heap.
    pub(super) fn small_buffers(accounts: Vec<Arc<Account>>) -> HeapCharges {
        HeapCharges { below_bytes: BELOW_BYTES, ..HeapCharges::no_buffers(accounts) }
    }

    /// Charges to `accounts` for a space none of whose buffers comes from the heap.
    pub(super) fn no_buffers(accounts: Vec<Arc<Account>>) -> HeapCharges {
        let (freed_bytes, taken_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        HeapCharges { accounts, below_bytes: 0, freed_bytes, taken_bytes }
    }

    /// Returns whether a buffer of so many bytes comes from the heap.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        bytes < self.below_bytes
    }

    /// Returns whether no buffer comes from the heap.
    pub(super) fn is_off(&self) -> bool {
        self.below_bytes == 0
    }

    /// The bytes that can be taken where so many bytes are left: whole granules, and the rest from
    /// the heap if that is there.
    pub(super) fn takeable_bytes(&self, bytes: u64, granule_bytes: u64) -> u64 {
        if self.is_off() { bytes / granule_bytes * granule_bytes } else { bytes }
    }

    /// Charges all accounts, or none.
    ///
    /// # Errors
    /// If a limit refuses.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        self.purge_before(bytes);
        for (number, account) in self.accounts.iter().enumerate() {
            if let Err(error) = account.charge(bytes) {
                self.accounts[..number].iter().for_each(|account| account.refund(bytes));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes a charge back.
    pub(super) fn refund(&self, bytes: u64) {
        self.accounts.iter().for_each(|account| account.refund(bytes));
        self.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes that may still be charged, also to `account`.
    pub(super) fn room_bytes(&self, account: Option<&Arc<Account>>) -> u64 {
        let all = self.accounts.iter().chain(account);
        all.map(|account| account.free_bytes()).min().unwrap_or(0)
    }

    /// Lets the heap return its free pages if much was freed there and much is taken now, or if
    /// there is much to return and little left of the limit.
    pub(super) fn purge_before(&self, bytes: u64) {
        let is_due = bytes >= LARGE_BYTES
            && self.freed_bytes.load(Ordering::Relaxed) >= FREED_BYTES_MAX
            && self.freed_bytes.swap(0, Ordering::Relaxed) >= FREED_BYTES_MAX;
        if is_due || self.is_due_near_the_limit(bytes) {
            heap::purge();
        }
    }

    fn is_due_near_the_limit(&self, bytes: u64) -> bool {
        let taken = self.taken_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if taken < LOOK_BYTES {
            return false;
        }
        self.taken_bytes.store(0, Ordering::Relaxed);
        let is_near = |account: &Arc<Account>| {
            account.free_bytes() < (account.limit_bytes() / NEAR_SHARE).saturating_add(bytes)
        };
        self.accounts.iter().any(is_near) && heap::purgeable_bytes() >= PURGEABLE_BYTES_MAX
    }

    /// Asserts that what is booked on the heap is charged to every account.
    #[cfg(test)]
    pub(super) fn check(&self, booked_bytes: u64) {
        for account in &self.accounts {
            assert!(booked_bytes <= account.held_bytes(), "{} is charged less", account.name());
        }
    }
}
