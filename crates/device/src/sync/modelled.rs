//! Locks and counters that let shuttle choose, before each use, which thread goes on.
//!
//! Outside of a model they are what they wrap. Threads of a model take turns on one thread of the
//! system, so that a lock must never wait: it asks again, and lets others go on in between.

use std::cell::Cell;
use std::sync::atomic::Ordering;

thread_local! {
    static IS_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` as part of a model, in which shuttle chooses who goes on.
pub(crate) fn in_model(work: impl FnOnce()) {
    IS_MODEL.set(true);
    work();
    IS_MODEL.set(false);
}

/// Lets another thread of the model go on, if this is one.
fn turn() {
    if IS_MODEL.get() {
        shuttle::thread::yield_now();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        if !IS_MODEL.get() {
            return self.0.lock();
        }
        loop {
            turn();
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicU64(std::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64(std::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        turn();
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        turn();
        self.0.store(value, order);
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        turn();
        self.0.swap(value, order)
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        turn();
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        turn();
        self.0.fetch_sub(value, order)
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        turn();
        self.0.fetch_max(value, order)
    }

    /// Others may go on between looking and changing, as on a machine.
    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        mut new: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let mut before = self.load(fetch);
        while let Some(next) = new(before) {
            turn();
            match self.0.compare_exchange(before, next, set, fetch) {
                Ok(_) => return Ok(before),
                Err(now) => before = now,
            }
        }
        Err(before)
    }
}
