//! `MemoryMap`: the regions of an arena, the chunks that they are divided into, and which of them
//! have memory.

use std::ops::Range;
use std::sync::Arc;

use super::bins;
use super::chunks::{Chunks, Sums};
use super::place::Place;
use super::records::{NONE, State};
use super::regions::{Placed, Regions};
use super::units::{ADDRESSES_PER_BYTE, Units};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::region::Region;

/// The memory that an arena holds from its driver: what is in use and what is free of it has
/// memory, what is void has none.
#[derive(Debug)]
pub(super) struct MemoryMap {
    driver: Arc<dyn Driver>,
    units: Units,
    regions: Regions,
    chunks: Chunks,
    held: Held,
}

/// The bytes held from the driver, and their changes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) n_growths: u64,
    pub(super) n_releases: u64,
}

impl MemoryMap {
    pub(super) fn new(driver: Arc<dyn Driver>) -> MemoryMap {
        driver.properties().check();
        let units = Units::new(driver.properties());
        let (regions, chunks) = (Regions::new(units), Chunks::new(units.granule()));
        MemoryMap { driver, units, regions, chunks, held: Held::default() }
    }

    pub(super) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    #[inline]
    pub(super) fn units(&self) -> Units {
        self.units
    }

    #[inline]
    pub(super) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Returns whether there is no region.
    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The first address of a chunk on the device.
    #[inline]
    pub(super) fn address(&self, id: u32) -> u64 {
        self.regions.address(self.chunks.get(id).start)
    }

    /// Takes the free chunk at a place of a side, and leaves there what is over.
    #[inline]
    pub(super) fn take(&mut self, side: u8, place: bins::Place, units: u32) -> u32 {
        self.chunks.take(side, place, units)
    }

    /// Makes a chunk in use free; returns its units.
    #[inline]
    pub(super) fn put(&mut self, id: u32) -> u32 {
        self.chunks.put(id)
    }

    /// The chunk with memory that an address is in, and its unit: one in use begins there.
    pub(super) fn chunk_at(&self, address: u64) -> Option<(u32, u32)> {
        let (placed, unit) = self.regions.find(address)?;
        let mut id = placed.head;
        while id != NONE && self.chunks.get(id).end() <= unit {
            id = self.chunks.get(id).next;
        }
        let record = self.chunks.get(Some(id).filter(|id| *id != NONE)?);
        let is_it = match record.state {
            State::InUse => record.start == unit,
            State::Free => true,
            State::Void => false,
        };
        is_it.then_some((id, unit))
    }

    /// Puts pages behind addresses, as far as they have memory.
    pub(super) fn populate(&self, addresses: &Range<u64>) {
        self.regions.iter().for_each(|placed| placed.region.populate(addresses));
    }

    /// Commits a range of a void chunk; returns the free chunk that it is part of then.
    pub(super) fn fill(&mut self, void: u32, range: &Range<u32>) -> Result<u32> {
        let grown = self.regions.commit(range)?;
        self.held.grew(grown);
        Ok(self.chunks.fill(void, range))
    }

    /// Puts memory where a place has none, and up to `spare_bytes` more behind it; returns where
    /// the free chunk stands that begins there.
    pub(super) fn fill_place(&mut self, place: &Place, spare_bytes: u64) -> Result<bins::Place> {
        let mut id = place.first;
        while id != NONE && self.chunks.get(id).start < place.units.end {
            let range = self.chunks.missing_in(id, &place.units);
            if !range.is_empty() {
                let last = range.end >= place.units.end;
                let wider = self.stretched(id, &range, if last { spare_bytes } else { 0 });
                id = self.fill(id, &wider).or_else(|_| self.fill(id, &range))?;
            }
            if self.chunks.get(id).end() >= place.units.end {
                break;
            }
            id = self.chunks.get(id).next;
        }
        Ok(self.chunks.carve(id, place.units.start))
    }

    /// A range of a void chunk with up to `spare_bytes` more above it.
    fn stretched(&self, void: u32, range: &Range<u32>, spare_bytes: u64) -> Range<u32> {
        let end = range.end.saturating_add(self.units.granules_within(spare_bytes));
        range.start..end.min(self.chunks.get(void).end())
    }

    /// Puts memory behind units that are in or behind a chunk, up to the first that somebody uses;
    /// returns the addresses.
    pub(super) fn fill_from(&mut self, mut id: u32, units: &Range<u32>) -> Vec<Range<u64>> {
        let mut addresses = Vec::new();
        let is_open = |chunks: &Chunks, id: u32| {
            let record = chunks.get(id);
            record.start < units.end && record.state != State::InUse
        };
        while id != NONE && is_open(&self.chunks, id) {
            let missing = self.chunks.missing_in(id, units);
            if !missing.is_empty() {
                let Ok(filled) = self.fill(id, &missing) else { break };
                let start = self.regions.address(missing.start);
                addresses.push(start..start + self.units.bytes(missing.end - missing.start));
                id = filled;
            }
            id = self.chunks.get(id).next;
        }
        addresses
    }

    /// Gives free granules back, at least `bytes` if there are as many; the largest chunks first,
    /// and none of `keep`.
    pub(super) fn give_back(&mut self, bytes: u64, keep: &Range<u32>) -> Result<()> {
        if !self.driver.properties().grows_in_place {
            self.release_regions(bytes, 0);
            return Ok(());
        }
        let mut left = bytes.div_ceil(self.units.bytes(1u32));
        let chunks: Vec<u32> = self.chunks.free_down().collect();
        for id in chunks {
            if left == 0 {
                break;
            }
            let range = self.chunks.whole_granules(id, keep);
            let most = u32::try_from(left).unwrap_or(u32::MAX);
            let most = most.checked_next_multiple_of(self.units.granule()).unwrap_or(u32::MAX);
            let units = most.min(range.end - range.start);
            if units > 0 {
                self.empty(id, &(range.end - units..range.end))?;
                left = left.saturating_sub(u64::from(units));
            }
        }
        Ok(())
    }

    /// The bytes that [`MemoryMap::give_back`] could give where parts of a region can go.
    pub(super) fn recyclable_bytes(&self, keep: &Range<u32>) -> u64 {
        let chunks = self.chunks.free_down();
        let units = chunks.map(|id| self.chunks.whole_granules(id, keep).len() as u64);
        self.units.bytes(units.sum::<u64>())
    }

    /// Decommits a range of granules of a free chunk.
    fn empty(&mut self, id: u32, range: &Range<u32>) -> Result<()> {
        let shrunk = self.regions.decommit(range)?;
        self.held.shrank(shrunk);
        self.chunks.empty(id, range);
        Ok(())
    }

    /// Adds a region of addresses without memory, with room for at least `units`.
    pub(super) fn add_addresses(&mut self, side: u8, units: u32) -> Result<()> {
        let properties = self.driver.properties();
        let least = self.units.bytes(units);
        let most = properties.capacity_bytes.saturating_mul(ADDRESSES_PER_BYTE);
        let mut bytes = most.clamp(least, properties.region_bytes_max.max(least));
        let region = loop {
            match Region::reserve(self.driver.clone(), bytes) {
                Err(_) if bytes / 2 >= least => bytes /= 2,
                region => break region?,
            }
        };
        self.add_region(side, region, State::Void).map(drop)
    }

    /// Adds a region of `bytes` with memory behind all of it, and returns its one free chunk.
    pub(super) fn add_memory(&mut self, side: u8, bytes: u64) -> Result<u32> {
        let region = Region::committed(self.driver.clone(), bytes)?;
        let held = region.bytes();
        let id = self.add_region(side, region, State::Free)?;
        self.held.grew(held);
        Ok(id)
    }

    /// Gives a region its units, and makes one chunk of them.
    fn add_region(&mut self, side: u8, region: Region, state: State) -> Result<u32> {
        let Some(units) = self.regions.free_units(region.bytes()) else {
            let free_bytes = self.driver.available_bytes();
            return Err(Error::Exhausted {
                device: self.driver.properties().name.clone(),
                needed_bytes: region.bytes(),
                free_bytes,
                limit_bytes: free_bytes.saturating_add(self.held.bytes),
            });
        };
        let head = self.chunks.add_run(side, &units, state);
        self.regions.insert(Placed { region, units, head, side });
        Ok(head)
    }

    /// Releases regions of which nothing is in use, until `bytes` went back; `least_bytes` are
    /// held afterwards, if they were before.
    pub(super) fn release_regions(&mut self, bytes: u64, least_bytes: u64) {
        let mut left = bytes;
        let empty = self.regions.iter().enumerate().rev();
        let empty = empty.filter(|(_, placed)| self.is_free(placed)).map(|(at, _)| at);
        for at in empty.collect::<Vec<usize>>() {
            let bytes = self.regions.get(at).region.bytes();
            if left == 0 || self.held.bytes - bytes < least_bytes {
                continue;
            }
            let placed = self.regions.remove(at);
            self.chunks.remove_run(placed.head);
            self.held.shrank(bytes);
            left = left.saturating_sub(bytes);
        }
    }

    /// Releases all regions, also those that have memory only in parts.
    ///
    /// # Panics
    /// If something is in use.
    pub(super) fn clear(&mut self) {
        for placed in self.regions.drain() {
            self.chunks.remove_run(placed.head);
            self.held.shrank(placed.region.held_bytes());
        }
    }

    /// The bytes of the regions of which nothing is in use.
    pub(super) fn free_regions_bytes(&self) -> u64 {
        let free = self.regions.iter().filter(|placed| self.is_free(placed));
        free.map(|placed| placed.region.bytes()).sum()
    }

    /// Returns whether nothing of a region with memory is in use.
    fn is_free(&self, placed: &Placed) -> bool {
        self.chunks.is_free_run(placed.head, &placed.units)
    }

    /// Gives back the room of lists that are empty.
    pub(super) fn shrink(&mut self) {
        self.chunks.shrink();
    }

    /// Asserts that all parts are as they say, and that what is in use and free has memory.
    /// Returns what the chunks add up to.
    pub(super) fn check(&self) -> Sums {
        self.units.check(self.driver.properties());
        self.regions.check();
        let mut sums = Sums::default();
        for Placed { units, head, side, .. } in self.regions.iter() {
            self.chunks.check_run(*side, *head, units, &mut sums);
        }
        self.chunks.check(&sums);
        let held = self.regions.held_bytes();
        assert_eq!(self.units.bytes(sums.in_use + sums.free), held, "in use + free == held");
        self.held.check(held);
        sums
    }
}

impl Held {
    fn grew(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
        self.n_growths += 1;
    }

    fn shrank(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.n_releases += 1;
    }

    /// Asserts that as much is counted as the regions hold.
    fn check(&self, held_bytes: u64) {
        assert_eq!(self.bytes, held_bytes, "what is held is counted");
        assert!(self.bytes <= self.peak_bytes, "no more is held than at the peak");
    }
}
