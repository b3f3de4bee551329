//! `Costs`: how long batches of each size have run, and so will.

use std::time::Duration;

/// A new measurement counts for one part in so many.
const MEMORY: u64 = 8;

/// Batch sizes are told apart by powers of two.
const N_BUCKETS: usize = 32;

/// Measured run times by batch size.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    /// For each power of two, the mean time in nanoseconds and the mean rows of batches up to it.
    buckets: [Mean; N_BUCKETS],
    /// A bit for each bucket that has been measured.
    measured: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    nanos: u64,
    rows: u64,
}

impl Costs {
    /// Takes note of a run.
    pub fn note(&mut self, n_rows: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let rows = n_rows.max(1) as u64;
        let bucket = bucket(n_rows);
        let mean = &mut self.buckets[bucket];
        *mean = match self.measured & (1 << bucket) {
            0 => Mean { nanos, rows },
            _ => Mean { nanos: blend(mean.nanos, nanos), rows: blend(mean.rows, rows) },
        };
        self.measured |= 1 << bucket;
    }

    /// Whether nothing has been measured.
    pub fn is_empty(&self) -> bool {
        self.measured == 0
    }

    /// How long a batch of `n_rows` is expected to run; `None` before the first measurement.
    /// Between two measured sizes it is interpolated, beyond them the time per row is taken to
    /// stay.
    pub fn predict(&self, n_rows: usize) -> Option<Duration> {
        let rows = n_rows.max(1) as u64;
        let own = bucket(n_rows);
        if self.measured & (1 << own) != 0 {
            return Some(Duration::from_nanos(self.buckets[own].nanos));
        }
        let below = (self.measured & ((1 << own) - 1)).checked_ilog2();
        let above = self.measured >> own;
        let above = (above != 0).then(|| above.trailing_zeros() as usize + own);
        let below = below.map(|bucket| self.buckets[bucket as usize]);
        let above = above.map(|bucket| self.buckets[bucket]);
        let nanos = match (below, above) {
            (None, None) => return None,
            (Some(below), Some(above)) => {
                let (span, part) = (above.rows - below.rows, rows - below.rows);
                let more = above.nanos.saturating_sub(below.nanos);
                below.nanos.saturating_add(scaled(more, part, span))
            }
            (Some(below), None) => scaled(below.nanos, rows, below.rows),
            // A smaller batch never takes longer.
            (None, Some(above)) => above.nanos,
        };
        Some(Duration::from_nanos(nanos))
    }

    /// The most rows that are expected to run within `limit`, at least 1.
    pub fn rows_within(&self, limit: Duration, rows_max: usize) -> usize {
        let fits = |n_rows: usize| self.predict(n_rows).is_none_or(|time| time <= limit);
        let mut rows = rows_max.max(1);
        while rows > 1 && !fits(rows) {
            rows /= 2;
        }
        rows
    }
}

fn bucket(n_rows: usize) -> usize {
    let bits = usize::BITS - n_rows.max(1).saturating_sub(1).leading_zeros();
    (bits as usize).min(N_BUCKETS - 1)
}

fn blend(mean: u64, new: u64) -> u64 {
    // Nothing measured is near the range of the type; saturation is for the clock's mishaps.
    mean.saturating_mul(MEMORY - 1).saturating_add(new) / MEMORY
}

fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn sizes_between_and_beyond_the_measured_ones_are_predicted() {
        let mut costs = Costs::default();
        assert_eq!(costs.predict(1), None);
        costs.note(1, millis(10));
        costs.note(8, millis(24));
        let check = |rows, expected| assert_eq!(costs.predict(rows), Some(millis(expected)));
        check(1, 10);
        check(2, 12);
        check(4, 16);
        check(8, 24);
        check(32, 96);
        assert_eq!(costs.rows_within(millis(24), 64), 8);
        assert_eq!(costs.rows_within(millis(1), 64), 1);
    }

    #[test]
    fn new_measurements_count_more_and_more() {
        let mut costs = Costs::default();
        costs.note(4, millis(10));
        (0..50).for_each(|_| costs.note(4, millis(20)));
        let predicted = costs.predict(4).unwrap();
        assert!(predicted > millis(19) && predicted <= millis(20), "{predicted:?}");
    }
}
