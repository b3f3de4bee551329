//! A device's memory, given out in chunks.
//!
//! An arena holds *regions*, pieces of address space reserved from a driver. A region is a gapless
//! list of *chunks*. A chunk is in use, free, or void:
//!
//! - *in use*: given out by [`Arena::allocate`], until [`Arena::free`] takes it back;
//! - *free*: memory that nobody uses. It stands in exactly one bin, and no two are neighbours;
//! - *void*: addresses without memory, in whole granules. No two are neighbours.
//!
//! So `in use + free == held`, what the driver has committed for the arena. [`Arena::check`]
//! asserts all of this; debug builds do so on each allocate and free.
//!
//! Chunks of a few units are slots of *slabs*, chunks of 64 units that stand in the list as in use;
//! what is free inside a slab is counted as free.
//!
//! A request takes the smallest free chunk that is large enough, the lowest among equals. If there
//! is none, the arena looks for a place among the chunks that are not in use where the fewest bytes
//! are missing, and puts memory there: first granules that are free elsewhere, which move, and only
//! then new ones from the driver. Since addresses cost nothing, fragmentation can waste the rest of
//! a granule, never more. Small and large chunks live on two *sides*, in regions of their own, so
//! that a small chunk does not keep a large granule alive.
//!
//! What is free stays until memory is needed elsewhere or [`Arena::trim`] gives it back: the steady
//! state makes no driver call. Chunks are indices into one table, and sizes count in units, so that
//! a chunk costs 24 bytes of the host.
//!
//! Where a driver cannot commit parts of a region, regions are added as needed, and empty ones go
//! back. With [`Growth::Reserved`] all memory is taken at once, and nothing moves.

mod ahead;
mod bins;
mod chunks;
mod growth;
mod lending;
mod memory_map;
mod place;
mod records;
mod regions;
mod slabs;
mod stats;
mod units;

use std::sync::Arc;

use crate::driver::Driver;
use crate::error::{Error, Result};

use chunks::{LARGE, SMALL};
use memory_map::MemoryMap;
use slabs::{SLAB_UNITS, SLOT_UNITS_MAX, Slabs};
pub use stats::Stats;
use stats::Usage;

/// A device's memory in chunks; see the module. Not shared between threads by itself.
#[derive(Debug)]
pub struct Arena {
    growth: Growth,
    /// The bytes that the arena keeps when it gives memory back.
    least_bytes: u64,
    map: MemoryMap,
    slabs: Slabs,
    usage: Usage,
}

/// The rule by which an arena takes memory from its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// As it is needed, at least this many bytes at a time if there are as many.
    OnDemand {
        /// The least by which an arena grows.
        step_bytes: u64,
    },
    /// This many bytes at the start, and never more nor less.
    Reserved {
        /// The bytes taken.
        bytes: u64,
    },
}

/// A chunk in use, to be given back to the arena it came from.
#[derive(Debug)]
#[must_use = "a chunk that is dropped stays in use"]
pub struct Chunk {
    id: u32,
    address: u64,
    bytes: u64,
}

impl Chunk {
    /// The chunk's first address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Arena {
    /// An arena of the driver's memory; with [`Growth::Reserved`] it takes all of it now.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn new(driver: Arc<dyn Driver>, growth: Growth) -> Result<Arena> {
        let map = MemoryMap::new(driver);
        let (slabs, usage) = (Slabs::new(), Usage::default());
        let mut arena = Arena { growth, least_bytes: 0, map, slabs, usage };
        if let Growth::Reserved { bytes } = growth {
            arena.map.add_memory(LARGE, bytes)?;
        }
        Ok(arena)
    }

    /// Takes `bytes` in whole granules now, and keeps as much from now on: it moves to where it is
    /// needed, but never goes back.
    ///
    /// # Errors
    /// If that much cannot be had. The arena is then as it was, except that some of it may be held.
    pub fn keep(&mut self, bytes: u64) -> Result<()> {
        let properties = self.driver().properties();
        let (largest, granule) = (properties.region_bytes_max, properties.granule_bytes);
        let bytes = bytes.next_multiple_of(granule);
        let peaks = self.usage.peaks();
        let (mut left, mut chunks, mut outcome) = (bytes, Vec::new(), Ok(()));
        while left > 0 && outcome.is_ok() {
            let piece = left.min(largest);
            outcome = self.allocate(piece).map(|chunk| chunks.push(chunk));
            left -= piece;
        }
        chunks.into_iter().for_each(|chunk| self.free(chunk));
        self.usage.set_peaks(peaks);
        outcome?;
        self.least_bytes = bytes;
        // A step may have been more than was asked for.
        self.trim(0).map(drop)
    }

    /// Gives out `bytes` bytes, aligned as the driver's kernels need it; an empty chunk takes the
    /// room of the smallest. Takes some tens of nanoseconds unless the arena must grow.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if limit, device and fragmentation leave no place. The arena is then as
    /// it was, except that some of what was free may have gone back to the driver.
    #[inline]
    pub fn allocate(&mut self, bytes: u64) -> Result<Chunk> {
        let units = self.units(bytes)?;
        let (id, address) = match units <= SLOT_UNITS_MAX {
            true => self.take_slot(units)?,
            false => {
                let id = self.take(self.side(units), units)?;
                (id, self.map.address(id))
            }
        };
        self.usage.allocated(self.map.units().bytes(units), bytes);
        self.debug_check();
        Ok(Chunk { id, address, bytes })
    }

    /// Takes a chunk back.
    ///
    /// # Panics
    /// If it came from another arena, as far as that can be seen.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a chunk given back must not be used again")]
    pub fn free(&mut self, chunk: Chunk) {
        let units = match slabs::is_slot(chunk.id) {
            true => self.put_slot(chunk.id),
            false => self.map.put(chunk.id),
        };
        self.usage.freed(self.map.units().bytes(units), chunk.bytes);
        self.debug_check();
    }

    /// The device's memory the arena is made of.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.map.driver()
    }

    /// The bytes that the arena holds from its driver.
    pub fn held_bytes(&self) -> u64 {
        self.map.held().bytes
    }

    /// The bytes given out, in whole units.
    pub fn in_use_bytes(&self) -> u64 {
        self.usage.in_use_bytes
    }

    /// The bytes held and not in use.
    pub fn idle_bytes(&self) -> u64 {
        self.held_bytes() - self.usage.in_use_bytes
    }

    /// Takes a slot, from a new slab if need be; a chunk if there is no room for a slab.
    #[inline]
    fn take_slot(&mut self, units: u32) -> Result<(u32, u64)> {
        loop {
            if let Some(slot) = self.slabs.take(units) {
                return Ok((slot.id, slot.slab + self.map.units().bytes(slot.unit)));
            }
            match self.take(SMALL, SLAB_UNITS) {
                Ok(chunk) => self.slabs.add(units, chunk, self.map.address(chunk)),
                Err(_) => {
                    let id = self.take(SMALL, units)?;
                    return Ok((id, self.map.address(id)));
                }
            }
        }
    }

    /// Takes a slot back, and the slab if that was the last; returns the slot's units.
    #[inline]
    fn put_slot(&mut self, id: u32) -> u32 {
        let (units, slab) = self.slabs.free(id);
        if let Some(chunk) = slab {
            self.map.put(chunk);
        }
        units
    }

    /// Takes a chunk of exactly `units` units, and grows if there is none.
    #[inline]
    fn take(&mut self, side: u8, units: u32) -> Result<u32> {
        match self.map.chunks().find(side, units) {
            Some(place) => Ok(self.map.take(side, place, units)),
            None => self.take_slowly(side, units),
        }
    }

    /// No chunk fits: take memory, or as a last resort a chunk of the other side.
    #[cold]
    fn take_slowly(&mut self, side: u8, units: u32) -> Result<u32> {
        let other = 1 - side;
        match self.grow(side, units) {
            Ok(place) => Ok(self.map.take(side, place, units)),
            Err(error) => match self.map.chunks().find(other, units) {
                Some(place) => Ok(self.map.take(other, place, units)),
                None => Err(error),
            },
        }
    }

    #[inline]
    fn units(&self, bytes: u64) -> Result<u32> {
        let units = self.map.units();
        units.for_bytes(bytes).ok_or_else(|| Error::TooLarge {
            device: self.driver().properties().name.clone(),
            needed_bytes: bytes,
            largest_bytes: units.bytes_max(),
        })
    }

    #[inline]
    fn side(&self, units: u32) -> u8 {
        if units < self.map.units().granule() / 8 { SMALL } else { LARGE }
    }

    /// Asserts everything that the module promises. Looks at each chunk.
    ///
    /// # Panics
    /// If the arena is broken: a bug.
    pub fn check(&self) {
        let (units, sums) = (self.map.units(), self.map.check());
        self.slabs.check(|chunk| self.map.chunks().get(chunk));
        self.usage.check(units.bytes(sums.in_use - self.slabs.free_units()));
        assert!(self.usage.in_use_bytes <= self.held_bytes(), "what is in use is held");
    }

    #[inline]
    fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check();
        }
    }
}

#[cfg(test)]
mod tests;
