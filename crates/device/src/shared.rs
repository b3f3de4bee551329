//! An arena that threads share, and what a thread keeps of it for itself.

use std::sync::Arc;

use crate::arena::{Arena, Chunk, Stats};
use crate::error::Result;
use crate::sync::Mutex;

/// An arena behind a lock; clones are the same arena.
#[derive(Debug, Clone)]
pub struct SharedArena {
    arena: Arc<Mutex<Arena>>,
}

impl SharedArena {
    /// Shares an arena.
    pub fn new(arena: Arena) -> SharedArena {
        SharedArena { arena: Arc::new(Mutex::new(arena)) }
    }

    /// Gives out `bytes` bytes that are taken back when they are dropped.
    ///
    /// # Errors
    /// As [`Arena::allocate`].
    pub fn allocate(&self, bytes: u64) -> Result<Piece> {
        let chunk = self.arena.lock().allocate(bytes)?;
        Ok(Piece { chunk: Some(chunk), arena: self.clone() })
    }

    /// As [`Arena::trim`].
    ///
    /// # Errors
    /// As [`Arena::trim`].
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.arena.lock().trim(keep_bytes)
    }

    /// As [`Arena::stats`].
    pub fn stats(&self) -> Stats {
        self.arena.lock().stats()
    }

    /// As [`Arena::check`].
    ///
    /// # Panics
    /// If the arena is broken: a bug.
    pub fn check(&self) {
        self.arena.lock().check();
    }
}

/// A chunk in use; dropping it frees the chunk.
#[derive(Debug)]
pub struct Piece {
    /// `None` only while it is dropped.
    chunk: Option<Chunk>,
    arena: SharedArena,
}

impl Piece {
    /// The first address on the device.
    pub fn address(&self) -> u64 {
        self.chunk.as_ref().map_or(0, Chunk::address)
    }

    /// The number of bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.chunk.as_ref().map_or(0, Chunk::bytes)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.arena.arena.lock().free(chunk);
        }
    }
}

/// Chunks that one thread freed and keeps for requests of the very same size, so that it needs no
/// lock for them. To the arena they are in use; dropping the cache frees them.
#[derive(Debug)]
pub struct Cache {
    arena: SharedArena,
    sets: Vec<Vec<Chunk>>,
    kept_bytes: u64,
    kept_bytes_max: u64,
}

/// A size belongs to one of so many sets, and a set keeps so many chunks.
const N_SETS: u64 = 64;
const N_WAYS: usize = 8;

impl Cache {
    /// A cache that keeps at most `kept_bytes_max` bytes.
    pub fn new(arena: SharedArena, kept_bytes_max: u64) -> Cache {
        let sets = (0..N_SETS).map(|_| Vec::with_capacity(N_WAYS)).collect();
        Cache { arena, sets, kept_bytes: 0, kept_bytes_max }
    }

    /// Gives out `bytes` bytes: a kept chunk of that size, or one of the arena.
    ///
    /// # Errors
    /// As [`Arena::allocate`], after everything that was kept has been freed.
    #[inline]
    pub fn allocate(&mut self, bytes: u64) -> Result<Chunk> {
        let set = &mut self.sets[set_of(bytes)];
        if let Some(at) = set.iter().rposition(|chunk| chunk.bytes() == bytes) {
            self.kept_bytes -= bytes;
            return Ok(set.swap_remove(at));
        }
        self.allocate_shared(bytes)
    }

    /// Takes a chunk back, from this cache or another of the same arena.
    #[inline]
    pub fn free(&mut self, chunk: Chunk) {
        let set = &mut self.sets[set_of(chunk.bytes())];
        if set.len() < N_WAYS && self.kept_bytes + chunk.bytes() <= self.kept_bytes_max {
            self.kept_bytes += chunk.bytes();
            set.push(chunk);
        } else {
            self.arena.arena.lock().free(chunk);
        }
    }

    /// Frees everything that is kept.
    pub fn flush(&mut self) {
        let mut arena = self.arena.arena.lock();
        for chunk in self.sets.iter_mut().flat_map(|set| set.drain(..)) {
            arena.free(chunk);
        }
        self.kept_bytes = 0;
    }

    /// The bytes that the cache keeps.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    #[cold]
    fn allocate_shared(&mut self, bytes: u64) -> Result<Chunk> {
        let allocated = self.arena.arena.lock().allocate(bytes);
        if allocated.is_ok() || self.kept_bytes == 0 {
            return allocated;
        }
        self.flush();
        self.arena.arena.lock().allocate(bytes)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sizes that differ little are in different sets.
#[inline]
fn set_of(bytes: u64) -> usize {
    let hash = bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    usize::try_from(hash % N_SETS).expect("there are few sets")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::random::Random;
    use crate::{Driver, Growth, Simulated};

    const MIB: u64 = 1 << 20;

    fn shared(capacity_bytes: u64) -> (Arc<Simulated>, SharedArena) {
        let gpu = Arc::new(Simulated::gpu("gpu:0", capacity_bytes));
        let arena = Arena::new(gpu.clone(), Growth::OnDemand { step_bytes: MIB }).unwrap();
        (gpu, SharedArena::new(arena))
    }

    #[test]
    fn a_piece_that_is_dropped_is_free_again() {
        let (_, arena) = shared(4 * MIB);
        let piece = arena.allocate(3 * MIB).unwrap();
        assert!(arena.allocate(2 * MIB).is_err());
        let address = piece.address();
        drop(piece);
        assert_eq!(arena.allocate(2 * MIB).unwrap().address(), address);
    }

    #[test]
    fn a_cache_gives_back_what_it_keeps_when_memory_is_short() {
        let (gpu, arena) = shared(8 * MIB);
        let mut cache = Cache::new(arena.clone(), 8 * MIB);
        let chunk = cache.allocate(5 * MIB).unwrap();
        cache.free(chunk);
        assert_eq!((cache.kept_bytes(), arena.stats().in_use_bytes), (5 * MIB, 5 * MIB));
        let larger = cache.allocate(6 * MIB).unwrap();
        assert_eq!(cache.kept_bytes(), 0);
        cache.free(larger);
        drop(cache);
        assert_eq!(arena.stats().in_use_bytes, 0);
        arena.trim(0).unwrap();
        assert_eq!(gpu.held_bytes(), 0);
    }

    #[test]
    fn threads_share_an_arena_without_losing_a_byte() {
        let (gpu, arena) = shared(256 * MIB);
        thread::scope(|scope| {
            for seed in 0..3 {
                let arena = arena.clone();
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut cache = Cache::new(arena.clone(), MIB);
                    let (mut chunks, mut pieces) = (Vec::new(), Vec::new());
                    for _ in 0..300 {
                        match random.below(4) {
                            0 => chunks.push(cache.allocate(random.size(16)).unwrap()),
                            1 => pieces.push(arena.allocate(random.size(16)).unwrap()),
                            2 => chunks.pop().into_iter().for_each(|chunk| cache.free(chunk)),
                            _ => drop(pieces.pop()),
                        }
                    }
                    chunks.into_iter().for_each(|chunk| cache.free(chunk));
                });
            }
        });
        arena.check();
        assert_eq!(arena.stats().in_use_bytes, 0);
        arena.trim(0).unwrap();
        assert_eq!(gpu.held_bytes(), 0);
    }
}
