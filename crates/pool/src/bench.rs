//! `Bench`: where threads wait; they look for a while, then park.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of looks of a thread before it parks: about 50 µs, the price of waking it again.
const LOOKS: u32 = 2000;

/// A place where threads wait for a change that another thread makes and then calls `wake`.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    /// The number of threads that are parked or about to park.
    parked: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Bench {
    /// Returns when `ready` holds. Parks at once when `quiet` holds.
    pub(crate) fn wait(&self, ready: impl Fn() -> bool, quiet: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if ready() {
                return;
            }
            if quiet() {
                break;
            }
            spin_loop();
        }
        let mut guard = lock(&self.lock);
        // Counted before the last look, so that whoever makes it ready afterwards sees us.
        self.parked.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes up to `n` parked threads, after a sequentially consistent change that makes them
    /// ready.
    pub(crate) fn wake(&self, n: usize) {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked == 0 {
            return;
        }
        // A thread between its last look and its sleep holds the lock.
        drop(lock(&self.lock));
        if n >= parked {
            self.changed.notify_all();
        } else {
            (0..n).for_each(|_| self.changed.notify_one());
        }
    }
}

/// The guard; no task runs while one of our locks is held, so none is ever poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
