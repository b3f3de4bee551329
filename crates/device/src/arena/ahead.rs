//! Memory that is taken before anybody asks for it.

use std::ops::Range;

use super::records::State;
use super::{Arena, Chunk, Growth, LARGE};

impl Arena {
    /// Takes as much memory as lets chunks of these sizes be given out at once without a driver
    /// call; as many of them, the first first, as fit in `most_bytes` and in half of what the
    /// driver has left, which is for others. Returns the addresses.
    pub fn grow_ahead(&mut self, sizes: &[u64], most_bytes: u64) -> Vec<Range<u64>> {
        let spare = self.idle_bytes().saturating_add(self.driver().available_bytes() / 2);
        self.grow_within(sizes, spare.min(most_bytes))
    }

    /// Takes as much memory as lets a chunk of `bytes` be given out again without a driver call, if
    /// the driver has that much: it was in use before, so that nothing of it is for others. Returns
    /// the addresses.
    pub fn grow_again(&mut self, bytes: u64) -> Vec<Range<u64>> {
        let spare = self.idle_bytes().saturating_add(self.driver().available_bytes());
        self.grow_within(&[bytes], spare)
    }

    /// Takes memory for chunks of these sizes, the first first, as many as fit in `left`.
    fn grow_within(&mut self, sizes: &[u64], mut left: u64) -> Vec<Range<u64>> {
        if matches!(self.growth, Growth::Reserved { .. }) {
            return Vec::new();
        }
        let peaks = self.usage.peaks();
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
        self.usage.set_peaks(peaks);
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
        let can_grow = self.driver().properties().grows_in_place;
        let known = self.map.chunk_at(address).zip(self.units(bytes).ok());
        let Some(((id, unit), n_units)) = known.filter(|_| can_grow) else { return Vec::new() };
        let units = self.map.units();
        let quarter = units.bytes(n_units / 4);
        let more = quarter.max(self.step_bytes(LARGE)).min(self.driver().available_bytes() / 2);
        let more = u32::try_from(units.within(more)).unwrap_or(0);
        let end = unit.saturating_add(n_units);
        let wanted = end..end.saturating_add(more);
        let record = self.map.chunks().get(id);
        let first = match record.state {
            State::InUse => record.next,
            State::Free | State::Void => id,
        };
        let all = units.bytes(n_units.saturating_add(more));
        if all <= most_elsewhere && self.map.chunks().is_used_in(first, &wanted) {
            return self.grow_ahead(&[all], most_elsewhere);
        }
        let addresses = self.map.fill_from(first, &wanted);
        self.debug_check();
        addresses
    }

    /// The most bytes that were given out at once since the last call; what was only taken ahead
    /// does not count.
    pub fn take_recent_peak(&mut self) -> u64 {
        self.usage.take_recent_peak()
    }

    /// Counts so many bytes besides what is given out as having been so, for
    /// [`Arena::take_recent_peak`].
    pub fn note_use(&mut self, bytes: u64) {
        self.usage.note_use(bytes);
    }

    /// Puts pages behind addresses, as far as they have memory: see
    /// [`Driver::populate`](crate::Driver::populate).
    pub fn populate(&self, addresses: &Range<u64>) {
        self.map.populate(addresses);
    }
}
