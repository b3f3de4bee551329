//! `Shelf`: an arena behind a lock, and what it has to spare, which is told without the lock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::arena::Arena;
use crate::sync::{AtomicU64, Mutex};

/// An arena that threads share.
pub(super) struct Shelf {
    arena: Mutex<Arena>,
    /// The arena's idle bytes, as of the last time that a thread had the lock.
    idle_bytes: AtomicU64,
}

/// The arena of a shelf, locked.
pub(super) struct Locked<'a> {
    arena: parking_lot::MutexGuard<'a, Arena>,
    idle_bytes: &'a AtomicU64,
}

impl Shelf {
    pub(super) fn new(arena: Arena) -> Self {
        let idle_bytes = AtomicU64::new(arena.idle_bytes());
        Self { arena: Mutex::new(arena), idle_bytes }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { arena: self.arena.lock(), idle_bytes: &self.idle_bytes }
    }

    /// The arena's idle bytes. A thread that gives memory back may keep the lock for a while; this
    /// does not wait for it.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn into_inner(self) -> Arena {
        self.arena.into_inner()
    }
}

impl Deref for Locked<'_> {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.arena
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.idle_bytes.store(self.arena.idle_bytes(), Ordering::Relaxed);
    }
}
