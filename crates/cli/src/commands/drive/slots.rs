//! `Slots`: what became of requests, by when they were due.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

/// The most slots; what is due later counts in the last.
const SLOTS_MAX: usize = 100_000;

/// Counts of answers and failures in slots of equal length.
#[derive(Debug)]
pub(super) struct Slots {
    each: Duration,
    start: Instant,
    /// The time of `start`, for other processes.
    start_unix: Duration,
    answered: Vec<u64>,
    failed: Vec<u64>,
}

impl Slots {
    /// Slots of this length from now on.
    pub(super) fn new(each: Duration) -> Self {
        let start_unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { each, start: Instant::now(), start_unix, answered: Vec::new(), failed: Vec::new() }
    }

    /// A request that was due then was answered, or not.
    pub(super) fn note(&mut self, due: Instant, is_answered: bool) {
        let nanos = due.saturating_duration_since(self.start).as_nanos();
        let slot = nanos / self.each.as_nanos().max(1);
        let slot = usize::try_from(slot).unwrap_or(usize::MAX).min(SLOTS_MAX - 1);
        if self.answered.len() <= slot {
            self.answered.resize(slot + 1, 0);
            self.failed.resize(slot + 1, 0);
        }
        let counts = if is_answered { &mut self.answered } else { &mut self.failed };
        counts[slot] += 1;
    }

    /// For people and scripts.
    pub(super) fn report(&self) -> Value {
        json!({ "start_unix": self.start_unix.as_secs_f64(), "seconds": self.each.as_secs_f64(),
                "answered": self.answered, "failed": self.failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_the_slot_in_which_they_were_due() {
        let mut slots = Slots::new(Duration::from_millis(20));
        let due = |ms| slots.start + Duration::from_millis(ms);
        let (first, second) = (due(19), due(41));
        slots.note(first, true);
        slots.note(second, false);
        slots.note(second, true);
        let report = slots.report();
        assert_eq!(
            (&report["answered"], &report["failed"]),
            (&json!([1, 0, 1]), &json!([0, 0, 1]))
        );
    }
}
