//! Memory that is taken before anybody asks for it.

use std::ops::Range;

use super::{Arena, Chunk, Growth};

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
