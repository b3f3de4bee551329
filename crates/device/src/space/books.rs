//! `Books`: how much of a space is in use, and who holds it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Space;
use super::owner::Tally;
use crate::account::Account;
use crate::error::Result;
use crate::ledger::{Category, Holder};
use crate::sync::{AtomicU64, Mutex};

/// The books of a space: the bytes that are given out, the tallies that they are booked to, and
/// what the device's driver has taken for itself.
pub struct Books {
    /// The logical device, and the physical one.
    accounts: Vec<Arc<Account>>,
    context: Mutex<BooksContext>,
    in_use: AtomicU64,
    peak_in_use: AtomicU64,
    tallies: Mutex<Vec<Weak<Tally>>>,
}

/// The bytes of the device's driver, charged for as long as the space is there.
struct BooksContext {
    accounts: Vec<Arc<Account>>,
    bytes: u64,
}

impl BooksContext {
    fn new(accounts: &[Arc<Account>], bytes: u64) -> Result<BooksContext> {
        let mut context = BooksContext { accounts: Vec::new(), bytes };
        for account in accounts {
            account.charge(bytes)?;
            context.accounts.push(Arc::clone(account));
        }
        Ok(context)
    }
}

impl Drop for BooksContext {
    fn drop(&mut self) {
        self.accounts.iter().for_each(|account| account.refund(self.bytes));
    }
}

/// Tallies that the books have room for from the start: a list that grows while a model is loaded
/// would be on pages of the heap that go with the model.
const FEW_TALLIES: usize = 256;

impl Books {
    /// Books in which nothing is in use but the device's context, which is charged to `accounts`.
    ///
    /// # Errors
    /// If a limit refuses.
    pub(super) fn new(accounts: Vec<Arc<Account>>, context_bytes: u64) -> Result<Books> {
        Ok(Books {
            context: Mutex::new(BooksContext::new(&accounts, context_bytes)?),
            accounts,
            in_use: AtomicU64::new(context_bytes),
            peak_in_use: AtomicU64::new(context_bytes),
            tallies: Mutex::new(Vec::with_capacity(FEW_TALLIES)),
        })
    }

    /// The bytes that are given out.
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The most bytes that were given out at once.
    pub fn peak_in_use_bytes(&self) -> u64 {
        self.peak_in_use.load(Ordering::Relaxed)
    }

    /// Forgets the peak: from now on it is what was given out at most since now.
    pub fn reset_peak(&self) {
        self.peak_in_use.store(self.in_use_bytes(), Ordering::Relaxed);
    }

    /// The bytes that the device's driver has taken for itself, as far as they are in these books.
    pub fn context_bytes(&self) -> u64 {
        self.context.lock().bytes
    }

    /// Puts something else in the books as what the device's driver has taken for itself.
    ///
    /// # Errors
    /// If a limit refuses; nothing is changed then.
    pub fn set_context(&self, bytes: u64) -> Result<()> {
        let mut context = self.context.lock();
        let new = BooksContext::new(&self.accounts, bytes)?;
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let before = std::mem::replace(&mut *context, new);
        self.in_use.fetch_sub(before.bytes, Ordering::Relaxed);
        self.peak_in_use.fetch_max(now - before.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts bytes that were given out.
    pub(super) fn add(&self, bytes: u64) {
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_in_use.fetch_max(now, Ordering::Relaxed);
    }

    /// Counts bytes that were given back.
    pub(super) fn subtract(&self, bytes: u64) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Opens a tally in the books.
    pub(super) fn register(&self, tally: &Arc<Tally>) {
        self.forget_gone();
        self.tallies.lock().push(Arc::downgrade(tally));
    }

    /// Lets go of what is left of tallies that are gone: each would keep a page of the heap.
    pub(super) fn forget_gone(&self) {
        let mut tallies = self.tallies.lock();
        tallies.retain(|tally| tally.strong_count() > 0);
        if tallies.capacity() > FEW_TALLIES.max(4 * tallies.len()) {
            tallies.shrink_to(FEW_TALLIES);
        }
    }

    /// The tallies that are open.
    pub(super) fn tallies(&self) -> Vec<Arc<Tally>> {
        self.tallies.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The tally of what is shared in `space`, whose books these are.
    pub(super) fn shared_tally(&self, space: &Arc<Space>, category: Category) -> Arc<Tally> {
        let is_it =
            |tally: &Arc<Tally>| *tally.holder() == Holder::Shared && tally.category() == category;
        let shared = self.tallies().into_iter().find(is_it);
        shared.unwrap_or_else(|| Tally::new(space, &Holder::Shared, category, &None))
    }

    /// The accounts that the context is charged to: the logical device's, and the physical one's.
    #[cfg(test)]
    pub(super) fn accounts(&self) -> &[Arc<Account>] {
        &self.accounts
    }

    /// Asserts that what is in use is what is booked, the context included, and that it is charged.
    /// Only for a moment in which nobody takes or gives back memory.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let booked: u64 = self.tallies().iter().map(|tally| tally.bytes()).sum();
        assert_eq!(self.in_use_bytes(), booked + self.context_bytes(), "what is in use is booked");
        assert!(self.in_use_bytes() <= self.peak_in_use_bytes(), "the peak is that or more");
        let least = self.accounts.iter().map(|account| account.held_bytes()).min();
        assert!(least.is_none_or(|held| self.in_use_bytes() <= held), "what is in use is charged");
    }
}
