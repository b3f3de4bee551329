//! `Headway`: how far a piece of work is, for those who wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The headway of a piece of work, told by the thread that does it and read by any other.
#[derive(Debug, Default)]
pub struct Headway {
    /// Changed with the bytes in one go, and seldom.
    phase: Mutex<(&'static str, u64)>,
    done_bytes: AtomicU64,
}

/// The headway of a piece of work at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadwaySnapshot {
    /// The name of the phase that it is in; empty before the first.
    pub phase: &'static str,
    /// The bytes of this phase that are done.
    pub done_bytes: u64,
    /// All bytes of this phase; 0 if that is not known.
    pub total_bytes: u64,
}

impl Headway {
    /// Begins a phase of so many bytes; 0 if that is not known.
    pub fn begin(&self, phase: &'static str, total_bytes: u64) {
        let mut current = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (phase, total_bytes);
        self.done_bytes.store(0, Ordering::Relaxed);
    }

    /// Counts bytes of the phase that are done.
    pub fn add(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A copy of the figures.
    pub fn snapshot(&self) -> HeadwaySnapshot {
        let current = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let (phase, total_bytes) = *current;
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        // What is not counted beforehand, such as a tensor that is read twice, is no more than all.
        let done_bytes = if total_bytes > 0 { done_bytes.min(total_bytes) } else { done_bytes };
        HeadwaySnapshot { phase, done_bytes, total_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_begins_without_the_bytes_of_the_one_before() {
        let headway = Headway::default();
        assert_eq!(headway.snapshot(), HeadwaySnapshot::default());
        headway.begin("reading weights", 10);
        headway.add(4);
        let expected = HeadwaySnapshot { phase: "reading weights", done_bytes: 4, total_bytes: 10 };
        assert_eq!(headway.snapshot(), expected);
        headway.add(9);
        assert_eq!(headway.snapshot().done_bytes, 10, "no more than all of it");
        headway.begin("warming up", 0);
        let expected = HeadwaySnapshot { phase: "warming up", ..HeadwaySnapshot::default() };
        assert_eq!(headway.snapshot(), expected);
    }
}
