//! Chunks of a few units, cut from slabs: one bit each instead of a record.
//!
//! A slab is a chunk of 64 units, in use as far as the rest of the arena is concerned, cut into
//! slots of one size. Graphs have thousands of scalars and shapes; this keeps them together, cheap
//! to find and cheap to remember.

use super::records::{Record, State};

/// Requests of up to this many units come from slabs.
pub(super) const SLOT_UNITS_MAX: u32 = 8;

/// The units of a slab: on the host, a page.
pub(super) const SLAB_UNITS: u32 = 64;

/// Set in the id of a chunk that is a slot; the slab's index and the slot's follow.
const SLOT: u32 = 1 << 31;

/// All slabs of an arena.
#[derive(Debug)]
pub(super) struct Slabs {
    table: Vec<Slab>,
    unused: Vec<u32>,
    /// For each size of slot, the slabs with a free one; the lowest last.
    partial: [Vec<u32>; SLOT_UNITS_MAX as usize],
    /// Units of slabs that no slot in use covers.
    free_units: u64,
}

#[derive(Debug)]
struct Slab {
    /// The slab's first address on the device.
    address: u64,
    /// Bit i is set if slot i is free.
    free: u64,
    /// The chunk it is made of; `NO_CHUNK` if this entry is not used.
    chunk: u32,
    slot_units: u32,
}

const NO_CHUNK: u32 = u32::MAX;

/// A slot that was given out.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: u32,
    /// The address of its slab.
    pub(super) slab: u64,
    /// The slot's distance above that, in units.
    pub(super) unit: u32,
}

impl Slabs {
    pub(super) fn new() -> Slabs {
        let partial = std::array::from_fn(|_| Vec::new());
        Slabs { table: Vec::new(), unused: Vec::new(), partial, free_units: 0 }
    }

    /// Takes the lowest free slot of `units` units, if there is one.
    #[inline]
    pub(super) fn take(&mut self, units: u32) -> Option<Slot> {
        let partial = &mut self.partial[units as usize - 1];
        let at = *partial.last()?;
        let slab = &mut self.table[at as usize];
        let slot = slab.free.trailing_zeros();
        slab.free &= slab.free - 1;
        if slab.free == 0 {
            partial.pop();
        }
        self.free_units -= u64::from(units);
        Some(Slot { id: SLOT | at << 6 | slot, slab: slab.address, unit: slot * units })
    }

    /// Frees a slot; returns its units, and the chunk of its slab if that is empty and there are
    /// others with room.
    #[inline]
    pub(super) fn free(&mut self, id: u32) -> (u32, Option<u32>) {
        let (at, bit) = ((id & !SLOT) >> 6, 1 << (id & 63));
        let slab = &mut self.table[at as usize];
        assert!(slab.chunk != NO_CHUNK && slab.free & bit == 0, "slot {id:x} is not in use");
        let (was_full, units) = (slab.free == 0, slab.slot_units);
        slab.free |= bit;
        let is_empty = slab.free == all_slots(units);
        self.free_units += u64::from(units);
        if was_full {
            self.list(at);
        }
        if is_empty && self.partial[units as usize - 1].len() > 1 {
            return (units, Some(self.remove(at)));
        }
        (units, None)
    }

    /// Adds a slab of slots of `units` units, made of `chunk` at `address`.
    pub(super) fn add(&mut self, units: u32, chunk: u32, address: u64) {
        assert!(0 < units && units <= SLOT_UNITS_MAX, "a slot of {units} units");
        let slab = Slab { address, free: all_slots(units), chunk, slot_units: units };
        let at = match self.unused.pop() {
            Some(at) => {
                self.table[at as usize] = slab;
                at
            }
            None => {
                self.table.push(slab);
                u32::try_from(self.table.len() - 1).expect("fewer slabs than chunks")
            }
        };
        assert!(at < SLOT >> 6, "more slabs than indices");
        self.free_units += u64::from(SLAB_UNITS);
        self.list(at);
    }

    /// Removes a slab of which no slot is in use, and returns its chunk.
    pub(super) fn remove_empty(&mut self) -> Option<u32> {
        let is_empty = |at: &&u32| {
            let slab = &self.table[**at as usize];
            slab.free == all_slots(slab.slot_units)
        };
        let at = *self.partial.iter().flatten().find(is_empty)?;
        Some(self.remove(at))
    }

    fn list(&mut self, at: u32) {
        let slab = &self.table[at as usize];
        let partial = &mut self.partial[slab.slot_units as usize - 1];
        let place = partial.partition_point(|o| self.table[*o as usize].address > slab.address);
        partial.insert(place, at);
    }

    #[cold]
    fn remove(&mut self, at: u32) -> u32 {
        let slab = &mut self.table[at as usize];
        let chunk = std::mem::replace(&mut slab.chunk, NO_CHUNK);
        self.partial[slab.slot_units as usize - 1].retain(|other| *other != at);
        self.unused.push(at);
        self.free_units -= u64::from(SLAB_UNITS);
        chunk
    }

    /// The number of units of slabs that are not given out.
    pub(super) fn free_units(&self) -> u64 {
        self.free_units
    }

    /// The bytes of host memory that the tables take.
    pub(super) fn bytes(&self) -> usize {
        let lists: usize = self.partial.iter().map(Vec::capacity).sum();
        (lists + self.unused.capacity()) * size_of::<u32>()
            + self.table.capacity() * size_of::<Slab>()
    }

    /// Asserts that slabs are chunks in use, and that those with room are listed.
    pub(super) fn check<'a>(&self, record: impl Fn(u32) -> &'a Record) {
        let mut free = 0;
        for (slab, at) in self.table.iter().zip(0u32..) {
            let listed = self.partial.iter().flatten().filter(|other| **other == at).count();
            if slab.chunk == NO_CHUNK {
                assert_eq!(listed, 0, "slab {at} is not used");
                continue;
            }
            let record = record(slab.chunk);
            assert_eq!((record.state, record.units), (State::InUse, SLAB_UNITS));
            assert_eq!(listed, usize::from(slab.free != 0), "slab {at} is listed {listed} times");
            assert_eq!(slab.free & !all_slots(slab.slot_units), 0, "slots beyond the slab");
            let n_used = (all_slots(slab.slot_units) & !slab.free).count_ones();
            free += u64::from(SLAB_UNITS - n_used * slab.slot_units);
        }
        assert_eq!(free, self.free_units, "units of slabs that are free");
    }
}

/// Returns whether a chunk's id is that of a slot.
#[inline]
pub(super) fn is_slot(id: u32) -> bool {
    id & SLOT != 0
}

/// A bit for each slot of `units` units that fits into a slab.
#[inline]
fn all_slots(units: u32) -> u64 {
    u64::MAX >> (64 - SLAB_UNITS / units)
}
