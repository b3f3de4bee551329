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
mod check;
mod growth;
mod lending;
mod place;
mod records;
mod slabs;
mod stats;

use std::sync::Arc;

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::region::Region;

use bins::Bins;
use records::{NONE, Record, Records, State};
use slabs::{SLAB_UNITS, SLOT_UNITS_MAX, Slabs};
use stats::Counters;
pub use stats::Stats;

/// A device's memory in chunks; see the module. Not shared between threads by itself.
#[derive(Debug)]
pub struct Arena {
    driver: Arc<dyn Driver>,
    growth: Growth,
    /// What it holds at least when it gives memory back.
    least_bytes: u64,
    /// Chunks begin and end at multiples of this.
    unit_bytes: u64,
    /// Its logarithm.
    unit_shift: u32,
    granule_units: u32,
    records: Records,
    /// Sorted by their units.
    regions: Vec<Placed>,
    sides: [Side; 2],
    slabs: Slabs,
    counters: Counters,
}

/// When an arena takes memory from its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// As it is needed, at least this many bytes at a time if there are as many.
    OnDemand {
        /// The least by which an arena grows.
        step_bytes: u64,
    },
    /// This many bytes at the start, and never more nor less.
    Reserved {
        /// What is taken.
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
    /// Where it begins on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A region, and the units that are its own.
#[derive(Debug)]
struct Placed {
    region: Region,
    first_unit: u32,
    units: u32,
    /// Its lowest chunk.
    head: u32,
    side: u8,
}

impl Placed {
    fn end(&self) -> u32 {
        self.first_unit + self.units
    }
}

/// The chunks of small requests, or those of large ones.
#[derive(Debug)]
struct Side {
    bins: Bins,
    /// Void chunks, from below.
    voids: Vec<u32>,
}

/// Void chunks that a side has room for from the start: a list that grows while a model is loaded
/// would be on pages of the heap that go with the model.
const FEW_VOIDS: usize = 32;

const SMALL: u8 = 0;
const LARGE: u8 = 1;

impl Arena {
    /// An arena of the driver's memory; with [`Growth::Reserved`] it takes all of it now.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn new(driver: Arc<dyn Driver>, growth: Growth) -> Result<Arena> {
        let properties = driver.properties();
        properties.check();
        let unit_bytes = unit_bytes(properties.alignment_bytes, properties.capacity_bytes);
        let unit_bytes = unit_bytes.min(properties.granule_bytes);
        let granule_units = u32::try_from(properties.granule_bytes / unit_bytes);
        let side = || Side { bins: Bins::new(), voids: Vec::with_capacity(FEW_VOIDS) };
        let mut arena = Arena {
            unit_bytes,
            unit_shift: unit_bytes.ilog2(),
            granule_units: granule_units.expect("a granule is a few units"),
            driver,
            growth,
            least_bytes: 0,
            records: Records::default(),
            regions: Vec::new(),
            sides: [side(), side()],
            slabs: Slabs::new(),
            counters: Counters::default(),
        };
        if let Growth::Reserved { bytes } = growth {
            arena.add_whole_region(LARGE, bytes)?;
        }
        Ok(arena)
    }

    /// Takes `bytes` in whole granules now, and keeps as much from now on: it moves to where it is
    /// needed, but never goes back.
    ///
    /// # Errors
    /// If that much cannot be had. The arena is then as it was, except that some of it may be held.
    pub fn keep(&mut self, bytes: u64) -> Result<()> {
        let properties = self.driver.properties();
        let (largest, granule) = (properties.region_bytes_max, properties.granule_bytes);
        let bytes = bytes.next_multiple_of(granule);
        let peaks = self.counters.peaks();
        let (mut left, mut chunks, mut outcome) = (bytes, Vec::new(), Ok(()));
        while left > 0 && outcome.is_ok() {
            let piece = left.min(largest);
            outcome = self.allocate(piece).map(|chunk| chunks.push(chunk));
            left -= piece;
        }
        chunks.into_iter().for_each(|chunk| self.free(chunk));
        self.counters.set_peaks(peaks);
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
                (id, self.address(self.records.get(id).start))
            }
        };
        self.counters.allocated(u64::from(units) << self.unit_shift, bytes);
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
            false => self.put(chunk.id),
        };
        self.counters.freed(u64::from(units) << self.unit_shift, chunk.bytes);
        self.debug_check();
    }

    /// The device's memory the arena is made of.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// How many bytes it holds from its driver.
    pub fn held_bytes(&self) -> u64 {
        self.counters.held_bytes
    }

    /// How many bytes are given out, in whole units.
    pub fn in_use_bytes(&self) -> u64 {
        self.counters.in_use_bytes
    }

    /// What is held and not in use.
    pub fn idle_bytes(&self) -> u64 {
        self.counters.held_bytes - self.counters.in_use_bytes
    }

    /// Takes a slot, from a new slab if need be; a chunk if there is no room for a slab.
    #[inline]
    fn take_slot(&mut self, units: u32) -> Result<(u32, u64)> {
        loop {
            if let Some(slot) = self.slabs.take(units) {
                return Ok((slot.id, slot.slab + (u64::from(slot.unit) << self.unit_shift)));
            }
            match self.take(SMALL, SLAB_UNITS) {
                Ok(chunk) => {
                    let address = self.address(self.records.get(chunk).start);
                    self.slabs.add(units, chunk, address);
                }
                Err(_) => {
                    let id = self.take(SMALL, units)?;
                    return Ok((id, self.address(self.records.get(id).start)));
                }
            }
        }
    }

    /// Takes a slot back, and the slab if that was the last; returns the slot's units.
    #[inline]
    fn put_slot(&mut self, id: u32) -> u32 {
        let (units, slab) = self.slabs.free(id);
        if let Some(chunk) = slab {
            self.put(chunk);
        }
        units
    }

    /// Takes a chunk of exactly `units` units, and grows if there is none.
    #[inline]
    fn take(&mut self, side: u8, units: u32) -> Result<u32> {
        match self.sides[usize::from(side)].bins.find(units) {
            Some(place) => Ok(self.take_at(side, place, units)),
            None => self.take_slowly(side, units),
        }
    }

    /// Takes the free chunk at a place, and leaves there what is over.
    #[inline]
    fn take_at(&mut self, side: u8, place: bins::Place, units: u32) -> u32 {
        let bins = &mut self.sides[usize::from(side)].bins;
        let id = bins.get(place);
        if self.records.get(id).units > units {
            let rest = self.records.split(id, units);
            bins.replace(&self.records, place, rest);
        } else {
            bins.remove_at(place);
        }
        self.records.get_mut(id).state = State::InUse;
        id
    }

    /// Makes a chunk in use free; returns its units.
    #[inline]
    fn put(&mut self, id: u32) -> u32 {
        let record = self.records.get_mut(id);
        assert!(record.state == State::InUse, "chunk {id} is not in use");
        record.state = State::Free;
        let units = record.units;
        self.list(id);
        units
    }

    /// Puts a free chunk that stands in no bin there, joined with its free neighbours; returns the
    /// chunk that it is part of then.
    #[inline]
    fn list(&mut self, id: u32) -> u32 {
        let &Record { prev, next, side, .. } = self.records.get(id);
        let bins = &mut self.sides[usize::from(side)].bins;
        let is_free = |id: u32| id != NONE && self.records.get(id).state == State::Free;
        match (is_free(prev), is_free(next)) {
            (false, false) => {
                bins.insert(&self.records, id);
                return id;
            }
            (false, true) => {
                let place = bins.place_of(&self.records, next);
                self.records.join_next(id);
                bins.replace(&self.records, place, id);
                return id;
            }
            (true, true) => {
                bins.remove(&self.records, next);
                self.records.join_next(id);
            }
            (true, false) => {}
        }
        let place = bins.place_of(&self.records, prev);
        self.records.join_next(prev);
        bins.replace(&self.records, place, prev);
        prev
    }

    /// No chunk fits: take memory, or as a last resort a chunk of the other side.
    #[cold]
    fn take_slowly(&mut self, side: u8, units: u32) -> Result<u32> {
        let other = 1 - side;
        match self.grow(side, units) {
            Ok(place) => Ok(self.take_at(side, place, units)),
            Err(error) => match self.sides[usize::from(other)].bins.find(units) {
                Some(place) => Ok(self.take_at(other, place, units)),
                None => Err(error),
            },
        }
    }

    #[inline]
    fn units(&self, bytes: u64) -> Result<u32> {
        let units = ((bytes.max(1) - 1) >> self.unit_shift) + 1;
        u32::try_from(units).map_err(|_| Error::TooLarge {
            device: self.driver.properties().name.clone(),
            needed_bytes: bytes,
            largest_bytes: self.unit_bytes * u64::from(u32::MAX),
        })
    }

    #[inline]
    fn side(&self, units: u32) -> u8 {
        if units < self.granule_units / 8 { SMALL } else { LARGE }
    }

    #[inline]
    fn address(&self, unit: u32) -> u64 {
        let placed = &self.regions[self.region_of(unit)];
        placed.region.base() + (u64::from(unit - placed.first_unit) << self.unit_shift)
    }

    #[inline]
    fn region_of(&self, unit: u32) -> usize {
        self.regions.partition_point(|placed| placed.first_unit <= unit) - 1
    }

    #[inline]
    fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check();
        }
    }
}

/// The alignment, unless the addresses that are needed would not fit 32 bits of such units.
fn unit_bytes(alignment_bytes: u64, capacity_bytes: u64) -> u64 {
    let addresses = capacity_bytes.saturating_mul(2 * growth::ADDRESSES_PER_BYTE);
    alignment_bytes.max(addresses.div_ceil(1 << 32).next_power_of_two())
}

#[cfg(test)]
mod tests;
