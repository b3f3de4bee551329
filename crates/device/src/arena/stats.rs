//! What an arena counts, and what it says of itself.

use super::{Arena, State};

/// A copy of an arena's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Held from the driver.
    pub held_bytes: u64,
    /// The most that was held at once.
    pub peak_held_bytes: u64,
    /// Given out, in whole units.
    pub in_use_bytes: u64,
    /// The most that was given out at once.
    pub peak_in_use_bytes: u64,
    /// Given out, as it was asked for.
    pub requested_bytes: u64,
    /// The largest free chunk.
    pub largest_free_bytes: u64,
    /// How many chunks there are, whatever their state.
    pub n_chunks: u32,
    /// How many chunks were given out.
    pub n_allocations: u64,
    /// How often memory was taken from the driver.
    pub n_growths: u64,
    /// How often memory was given back to it.
    pub n_releases: u64,
    /// What the bookkeeping costs the host.
    pub bookkeeping_bytes: u64,
}

impl Stats {
    /// Held, but not given out.
    pub fn free_bytes(&self) -> u64 {
        self.held_bytes - self.in_use_bytes
    }

    /// The share of the free bytes that are not in the largest free chunk, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        let free = self.free_bytes();
        if free == 0 {
            return 0.0;
        }
        (free - self.largest_free_bytes) as f64 / free as f64
    }
}

/// What an arena counts as it goes.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) held_bytes: u64,
    peak_held_bytes: u64,
    pub(super) in_use_bytes: u64,
    peak_in_use_bytes: u64,
    /// The most that was given out at once since somebody asked.
    recent_peak_bytes: u64,
    requested_bytes: u64,
    n_allocations: u64,
    n_growths: u64,
    n_releases: u64,
}

impl Counters {
    #[inline]
    pub(super) fn allocated(&mut self, bytes: u64, requested: u64) {
        self.in_use_bytes += bytes;
        self.recent_peak_bytes = self.recent_peak_bytes.max(self.in_use_bytes);
        self.peak_in_use_bytes = self.peak_in_use_bytes.max(self.in_use_bytes);
        self.requested_bytes += requested;
        self.n_allocations += 1;
    }

    #[inline]
    pub(super) fn freed(&mut self, bytes: u64, requested: u64) {
        self.in_use_bytes -= bytes;
        self.requested_bytes -= requested;
    }

    /// The most that was given out at once since the last call.
    pub(super) fn take_recent_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.recent_peak_bytes, self.in_use_bytes)
    }

    /// Lets the recent peak be at least what is given out and `bytes` more.
    pub(super) fn note_use(&mut self, bytes: u64) {
        let used = self.in_use_bytes.saturating_add(bytes);
        self.recent_peak_bytes = self.recent_peak_bytes.max(used);
    }

    /// The peaks, to be put back by [`Counters::set_peaks`] after what is not to count.
    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.peak_in_use_bytes, self.recent_peak_bytes)
    }

    pub(super) fn set_peaks(&mut self, (peak, recent): (u64, u64)) {
        self.peak_in_use_bytes = peak;
        self.recent_peak_bytes = recent;
    }

    pub(super) fn grew(&mut self, bytes: u64) {
        self.held_bytes += bytes;
        self.peak_held_bytes = self.peak_held_bytes.max(self.held_bytes);
        self.n_growths += 1;
    }

    pub(super) fn shrank(&mut self, bytes: u64) {
        self.held_bytes -= bytes;
        self.n_releases += 1;
    }
}

impl Arena {
    /// A copy of the counters.
    pub fn stats(&self) -> Stats {
        let c = &self.counters;
        let largest = self.sides.iter().filter_map(|side| side.bins.largest());
        let largest = largest.map(|id| self.records.get(id)).filter(|r| r.state == State::Free);
        let largest_units = largest.map(|record| record.units).max().unwrap_or(0);
        let sides = self.sides.iter();
        let sides = sides.map(|s| s.bins.bytes() + s.voids.capacity() * size_of::<u32>());
        let bookkeeping = self.records.bytes() + sides.sum::<usize>() + self.slabs.bytes();
        let bookkeeping = bookkeeping + size_of::<Arena>();
        Stats {
            held_bytes: c.held_bytes,
            peak_held_bytes: c.peak_held_bytes,
            in_use_bytes: c.in_use_bytes,
            peak_in_use_bytes: c.peak_in_use_bytes,
            requested_bytes: c.requested_bytes,
            largest_free_bytes: u64::from(largest_units) * self.unit_bytes,
            n_chunks: self.records.len(),
            n_allocations: c.n_allocations,
            n_growths: c.n_growths,
            n_releases: c.n_releases,
            bookkeeping_bytes: bookkeeping as u64,
        }
    }
}
