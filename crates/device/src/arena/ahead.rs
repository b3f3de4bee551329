//! Memory that is taken before anybody asks for it.

use std::ops::Range;

use super::records::{NONE, State};
use super::{Arena, Chunk, Growth, LARGE};

impl Arena {
    /// Takes as much memory as lets chunks of these sizes be given out at once without a driver
    /// call; as many of them, the first first, as fit in `most_bytes` and in half of what the
    /// driver has left, which is for others. Returns the addresses.
    pub fn grow_ahead(&mut self, sizes: &[u64], most_bytes: u64) -> Vec<Range<u64>> {
        let spare = self.idle_bytes().saturating_add(self.driver.available_bytes() / 2);
        self.grow_within(sizes, spare.min(most_bytes))
    }

    /// Takes as much memory as lets a chunk of `bytes` be given out again without a driver call, if
    /// the driver has that much: it was in use before, so that nothing of it is for others. Returns
    /// the addresses.
    pub fn grow_again(&mut self, bytes: u64) -> Vec<Range<u64>> {
        let spare = self.idle_bytes().saturating_add(self.driver.available_bytes());
        self.grow_within(&[bytes], spare)
    }

    /// Takes memory for chunks of these sizes, the first first, as many as fit in `left`.
    fn grow_within(&mut self, sizes: &[u64], mut left: u64) -> Vec<Range<u64>> {
        if matches!(self.growth, Growth::Reserved { .. }) {
            return Vec::new();
        }
        let peaks = self.counters.peaks();
        let mut chunks: Vec<Chunk> = Vec::with_capacity(sizes.len());
        for bytes in sizes {
            let Some(rest) = left.checked_sub(*bytes) else { break };
            let Ok(chunk) = self.allocate(*bytes) else { break };
            left = rest;
            chunks.push(chunk);
        }
        let addresses = chunks.iter().map(|chunk| chunk.address..chunk.address + chunk.bytes);
        let addresses = addresses.collect();
        chunks.into_iter().rev().for_each(|chunk| self.free(chunk));
        self.counters.set_peaks(peaks);
        addresses
    }

    /// Takes memory so that a chunk of `bytes` at an address can be given back and had again larger
    /// without a driver call: by a quarter, or by the step by which the arena grows if that is
    /// more, but by no more than half of what the driver has left. It is behind the chunk; where
    /// somebody else uses what is there, it is in another place for all of it, if that is no more
    /// than `most_elsewhere`, else as far as nobody does. Nothing is taken if there is no memory at
    /// the address any more. Returns the addresses.
    pub fn grow_behind(
        &mut self,
        address: u64,
        bytes: u64,
        most_elsewhere: u64,
    ) -> Vec<Range<u64>> {
        let can_grow = self.driver.properties().grows_in_place;
        let known = self.chunk_at(address).zip(self.units(bytes).ok());
        let Some(((id, unit), units)) = known.filter(|_| can_grow) else { return Vec::new() };
        let quarter = u64::from(units / 4) << self.unit_shift;
        let more = quarter.max(self.step_bytes(LARGE)).min(self.driver.available_bytes() / 2);
        let more = u32::try_from(more >> self.unit_shift).unwrap_or(0);
        let end = unit.saturating_add(units);
        let wanted = end..end.saturating_add(more);
        let first = match self.records.get(id).state {
            State::InUse => self.records.get(id).next,
            State::Free | State::Void => id,
        };
        let all = u64::from(units.saturating_add(more)) << self.unit_shift;
        if all <= most_elsewhere && self.is_used_in(first, &wanted) {
            return self.grow_ahead(&[all], most_elsewhere);
        }
        let addresses = self.fill_from(first, &wanted);
        self.debug_check();
        addresses
    }

    /// Whether somebody uses some of the units, which are in or behind a chunk.
    fn is_used_in(&self, mut id: u32, units: &Range<u32>) -> bool {
        while id != NONE && self.records.get(id).start < units.end {
            let record = self.records.get(id);
            if record.state == State::InUse {
                return true;
            }
            id = record.next;
        }
        false
    }

    /// Puts memory behind units that are in or behind a chunk, up to the first that somebody uses;
    /// returns the addresses.
    fn fill_from(&mut self, mut id: u32, units: &Range<u32>) -> Vec<Range<u64>> {
        let mut addresses = Vec::new();
        let is_open = |arena: &Arena, id: u32| {
            let record = arena.records.get(id);
            record.start < units.end && record.state != State::InUse
        };
        while id != NONE && is_open(self, id) {
            let missing = self.missing_in(id, units);
            if !missing.is_empty() {
                let Ok(filled) = self.fill(id, missing.clone()) else { break };
                let start = self.address(missing.start);
                addresses.push(start..start + ((missing.len() as u64) << self.unit_shift));
                id = filled;
            }
            id = self.records.get(id).next;
        }
        addresses
    }

    /// The chunk with memory that an address is in, and its unit: one in use begins there.
    fn chunk_at(&self, address: u64) -> Option<(u32, u32)> {
        let within = |placed: &&super::Placed| {
            let base = placed.region.base();
            (base..base + placed.region.bytes()).contains(&address)
        };
        let placed = self.regions.iter().find(within)?;
        let offset = (address - placed.region.base()) >> self.unit_shift;
        let unit = placed.first_unit + u32::try_from(offset).ok()?;
        let mut id = placed.head;
        while id != NONE && self.records.get(id).end() <= unit {
            id = self.records.get(id).next;
        }
        let record = self.records.get(Some(id).filter(|id| *id != NONE)?);
        let is_it = match record.state {
            State::InUse => record.start == unit,
            State::Free => true,
            State::Void => false,
        };
        is_it.then_some((id, unit))
    }

    /// The most bytes that were given out at once since the last call; what was only taken ahead
    /// does not count.
    pub fn take_recent_peak(&mut self) -> u64 {
        self.counters.take_recent_peak()
    }

    /// Counts so many bytes besides what is given out as having been so, for
    /// [`Arena::take_recent_peak`].
    pub fn note_use(&mut self, bytes: u64) {
        self.counters.note_use(bytes);
    }

    /// Puts pages behind addresses, as far as they have memory: see
    /// [`Driver::populate`](crate::Driver::populate).
    pub fn populate(&self, addresses: &Range<u64>) {
        self.regions.iter().for_each(|placed| placed.region.populate(addresses));
    }
}
