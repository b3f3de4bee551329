//! The counters of an arena, and its report of itself.

use super::Arena;

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
    /// The number of chunks in any state.
    pub n_chunks: u32,
    /// The number of chunks given out so far.
    pub n_allocations: u64,
    /// The number of times memory was taken from the driver.
    pub n_growths: u64,
    /// The number of times memory was given back to the driver.
    pub n_releases: u64,
    /// The bytes of host memory that the bookkeeping takes.
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

/// The chunks that an arena has given out.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) in_use_bytes: u64,
    peak_in_use_bytes: u64,
    /// The most that was given out at once since somebody asked.
    recent_peak_bytes: u64,
    requested_bytes: u64,
    n_allocations: u64,
}

impl Usage {
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

    /// The peaks, to be put back by [`Usage::set_peaks`] after what is not to count.
    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.peak_in_use_bytes, self.recent_peak_bytes)
    }

    pub(super) fn set_peaks(&mut self, (peak, recent): (u64, u64)) {
        self.peak_in_use_bytes = peak;
        self.recent_peak_bytes = recent;
    }

    /// Asserts that as much is counted as the chunks add up to.
    pub(super) fn check(&self, in_use_bytes: u64) {
        assert_eq!(self.in_use_bytes, in_use_bytes, "what is in use is counted");
        assert!(self.requested_bytes <= in_use_bytes, "no more was asked for than is in use");
        assert!(in_use_bytes <= self.recent_peak_bytes, "the recent peak is that or more");
    }
}

impl Arena {
    /// A copy of the counters.
    pub fn stats(&self) -> Stats {
        let (usage, held, chunks) = (&self.usage, self.map.held(), self.map.chunks());
        let bookkeeping = chunks.bytes() + self.slabs.bytes() + size_of::<Arena>();
        Stats {
            held_bytes: held.bytes,
            peak_held_bytes: held.peak_bytes,
            in_use_bytes: usage.in_use_bytes,
            peak_in_use_bytes: usage.peak_in_use_bytes,
            requested_bytes: usage.requested_bytes,
            largest_free_bytes: self.map.units().bytes(chunks.largest_free_units()),
            n_chunks: chunks.len(),
            n_allocations: usage.n_allocations,
            n_growths: held.n_growths,
            n_releases: held.n_releases,
            bookkeeping_bytes: bookkeeping as u64,
        }
    }
}
