//! Memory that is taken before anybody asks for it.

use std::ops::Range;

use super::records::{NONE, State};
use super::{Arena, Chunk, Growth, LARGE};

impl Arena {
    /// Takes as much memory as lets chunks of these sizes be given out at once without a driver
    /// call; as many of them, the first first, as fit in `most_bytes` and in half of what the
    /// driver has left, which is for others. Returns the addresses.
    pub fn grow_ahead(&mut self, sizes: &[u64], most_bytes: u64) -> Vec<Range<u64>> {
        if matches!(self.growth, Growth::Reserved { .. }) {
            return Vec::new();
        }
        let peaks = self.counters.peaks();
        let spare = self.idle_bytes().saturating_add(self.driver.available_bytes() / 2);
        let mut left = spare.min(most_bytes);
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

    /// Puts memory behind the chunk in use at an address, so that it can be given back and had
    /// again larger without a driver call: by a quarter, or by the step by which the arena grows if
    /// that is more. As far as nobody uses what is behind it, and half of what the driver has left
    /// goes. Returns the addresses.
    pub fn grow_behind(&mut self, address: u64) -> Vec<Range<u64>> {
        let can_grow = self.driver.properties().grows_in_place;
        let Some(id) = self.chunk_at(address).filter(|_| can_grow) else { return Vec::new() };
        let chunk = *self.records.get(id);
        let quarter = u64::from(chunk.units / 4) << self.unit_shift;
        let more = quarter.max(self.step_bytes(LARGE)).min(self.driver.available_bytes() / 2);
        let more = u32::try_from(more >> self.unit_shift).unwrap_or(0);
        let wanted = chunk.end()..chunk.end().saturating_add(more);
        let (mut addresses, mut next) = (Vec::new(), chunk.next);
        while next != NONE {
            let record = *self.records.get(next);
            if record.state == State::InUse || record.start >= wanted.end {
                break;
            }
            let missing = self.missing_in(next, &wanted);
            if !missing.is_empty() {
                let Ok(filled) = self.fill(next, missing.clone()) else { break };
                let start = self.address(missing.start);
                addresses.push(start..start + ((missing.len() as u64) << self.unit_shift));
                next = filled;
            }
            next = self.records.get(next).next;
        }
        self.debug_check();
        addresses
    }

    /// The chunk in use that begins at an address, if there is one.
    fn chunk_at(&self, address: u64) -> Option<u32> {
        let is_in = |range: Range<u64>| range.contains(&address);
        let within = |placed: &&super::Placed| {
            let base = placed.region.base();
            is_in(base..base + placed.region.bytes())
        };
        let placed = self.regions.iter().find(within)?;
        let offset = (address - placed.region.base()) >> self.unit_shift;
        let unit = placed.first_unit + u32::try_from(offset).ok()?;
        let mut id = placed.head;
        while id != NONE && self.records.get(id).start < unit {
            id = self.records.get(id).next;
        }
        let is_it = |id: &u32| {
            let record = self.records.get(*id);
            record.start == unit && record.state == State::InUse
        };
        Some(id).filter(|id| *id != NONE).filter(is_it)
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
