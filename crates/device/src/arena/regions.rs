//! The regions of an arena: which units are whose addresses.

use std::ops::Range;

use super::units::Units;
use crate::error::Result;
use crate::region::Region;

/// The regions of an arena, sorted by their units, which do not overlap.
#[derive(Debug)]
pub(super) struct Regions {
    units: Units,
    all: Vec<Placed>,
}

/// A region, and the units that are its own.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) region: Region,
    pub(super) units: Range<u32>,
    /// Its lowest chunk.
    pub(super) head: u32,
    pub(super) side: u8,
}

impl Regions {
    pub(super) fn new(units: Units) -> Regions {
        Regions { units, all: Vec::new() }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Placed> + ExactSizeIterator {
        self.all.iter()
    }

    /// The `at`-th region from below.
    pub(super) fn get(&self, at: usize) -> &Placed {
        &self.all[at]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The lowest units that a region of so many bytes can have; `None` if there are not as many.
    pub(super) fn free_units(&self, bytes: u64) -> Option<Range<u32>> {
        let units = u32::try_from(self.units.within(bytes)).ok().filter(|n| *n < u32::MAX)?;
        let mut start = 0u32;
        for placed in &self.all {
            if placed.units.start - start >= units {
                break;
            }
            start = placed.units.end;
        }
        Some(start..start.checked_add(units)?)
    }

    /// Adds a region at units of [`Regions::free_units`].
    pub(super) fn insert(&mut self, placed: Placed) {
        let at = self.all.partition_point(|other| other.units.start < placed.units.start);
        self.all.insert(at, placed);
    }

    /// Removes the `at`-th region from below.
    pub(super) fn remove(&mut self, at: usize) -> Placed {
        self.all.remove(at)
    }

    /// Removes all regions.
    pub(super) fn drain(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.all)
    }

    /// The address of a unit.
    #[inline]
    pub(super) fn address(&self, unit: u32) -> u64 {
        let placed = &self.all[self.index_of(unit)];
        placed.region.base() + self.units.bytes(unit - placed.units.start)
    }

    /// The region that an address is in, and its unit.
    pub(super) fn find(&self, address: u64) -> Option<(&Placed, u32)> {
        let within = |placed: &&Placed| {
            let base = placed.region.base();
            (base..base + placed.region.bytes()).contains(&address)
        };
        let placed = self.all.iter().find(within)?;
        let offset = self.units.within(address - placed.region.base());
        Some((placed, placed.units.start + u32::try_from(offset).ok()?))
    }

    /// Puts memory behind units of one region; returns how many bytes.
    pub(super) fn commit(&mut self, units: &Range<u32>) -> Result<u64> {
        let (at, bytes) = self.offsets(units);
        let grown = bytes.end - bytes.start;
        self.all[at].region.commit(bytes)?;
        Ok(grown)
    }

    /// Gives back the memory behind units of one region; returns how many bytes.
    pub(super) fn decommit(&mut self, units: &Range<u32>) -> Result<u64> {
        let (at, bytes) = self.offsets(units);
        let shrunk = bytes.end - bytes.start;
        self.all[at].region.decommit(bytes)?;
        Ok(shrunk)
    }

    /// The bytes that all regions hold from the driver.
    pub(super) fn held_bytes(&self) -> u64 {
        self.all.iter().map(|placed| placed.region.held_bytes()).sum()
    }

    #[inline]
    fn index_of(&self, unit: u32) -> usize {
        self.all.partition_point(|placed| placed.units.start <= unit) - 1
    }

    /// The region that units lie in, and their offsets there.
    fn offsets(&self, units: &Range<u32>) -> (usize, Range<u64>) {
        let at = self.index_of(units.start);
        let first = self.all[at].units.start;
        let offset = |unit: u32| self.units.bytes(unit - first);
        (at, offset(units.start)..offset(units.end))
    }

    /// Asserts that the regions are sorted and apart, and have as many units as addresses.
    pub(super) fn check(&self) {
        let mut end = 0;
        for Placed { region, units, .. } in &self.all {
            assert!(units.start >= end, "regions overlap");
            assert_eq!(self.units.bytes(units.end - units.start), region.bytes());
            assert!(region.held_bytes() <= region.bytes(), "more memory than addresses");
            end = units.end;
        }
    }
}
