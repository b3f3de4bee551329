//! `Costs`: how long batches of each size have run, and so will.

use std::time::Duration;

/// A new measurement counts for one part in so many.
const MEMORY: u64 = 8;

/// Batch sizes are told apart by powers of two.
const N_BUCKETS: usize = 32;

/// The number of runs of a size before its time is believed: the first runs make plans.
const ENOUGH: u32 = 4;

/// Larger batches must save more than one part in so many of the time of a row.
const WORTH_PART: u64 = 10;

/// Sizes are compared over so many runs: a choice must not follow every hiccup of a busy machine.
const LONG_MEMORY: u64 = 64;

/// One batch in so many tries a size of which too little is known.
const TRY_EVERY: u64 = 8;

/// One batch in so many tries a size that is not used, in case it has become better.
const LOOK_EVERY: u64 = 256;

/// Measured run times by batch size.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    /// For each power of two, the mean time in nanoseconds and the mean rows of batches up to it.
    buckets: [Mean; N_BUCKETS],
    /// A bit for each bucket that has been measured.
    measured: u32,
    /// The number of times that the rows of a batch were chosen.
    n_choices: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    nanos: u64,
    rows: u64,
    n: u32,
    /// The mean time of a row, over more runs.
    row_nanos: u64,
}

impl Costs {
    /// Takes note of a run.
    pub fn note(&mut self, n_rows: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let rows = n_rows.max(1) as u64;
        let bucket = bucket(n_rows);
        let mean = &mut self.buckets[bucket];
        let n = mean.n.saturating_add(1);
        *mean = match n {
            1 => Mean { nanos, rows, n, row_nanos: nanos / rows },
            // The first may have had more to do than to run.
            2 => {
                let nanos = nanos.min(mean.nanos);
                Mean { nanos, rows, n, row_nanos: nanos / rows }
            }
            _ => Mean {
                nanos: blend(mean.nanos, nanos, MEMORY),
                rows: blend(mean.rows, rows, MEMORY),
                n,
                row_nanos: blend(mean.row_nanos, nanos / rows, LONG_MEMORY.min(n.into())),
            },
        };
        self.measured |= 1 << bucket;
    }

    /// Returns whether nothing has been measured.
    pub fn is_empty(&self) -> bool {
        self.measured == 0
    }

    /// The expected run time of a batch of `n_rows`; `None` before the first measurement. Between
    /// two measured sizes it is interpolated, beyond them the time per row is taken to stay.
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

    /// The rows of a batch that is made of `n_waiting`, of at most `rows_max`: the fewest that take
    /// about as little time for each row as more would, so that others need not wait for what gains
    /// nothing. Now and then another size is tried, so that this is known.
    pub fn choose(&mut self, n_waiting: usize, rows_max: usize) -> usize {
        let top = bucket(n_waiting.min(rows_max));
        if top == 0 {
            return rows_max;
        }
        self.n_choices += 1;
        let unknown = (0..=top).find(|bucket| self.buckets[*bucket].n < ENOUGH);
        let tried = match unknown {
            Some(bucket) if self.n_choices.is_multiple_of(TRY_EVERY) => Some(bucket),
            None if self.n_choices.is_multiple_of(LOOK_EVERY) => {
                usize::try_from(self.n_choices / LOOK_EVERY).ok().map(|turn| turn % (top + 1))
            }
            _ => None,
        };
        tried.map_or_else(|| self.rows_worth(top, rows_max), |bucket| 1 << bucket).min(rows_max)
    }

    /// The rows of most batches that are made of `n_waiting`, of at most `rows_max`.
    pub fn usual(&self, n_waiting: usize, rows_max: usize) -> usize {
        match bucket(n_waiting.min(rows_max)) {
            0 => rows_max,
            top => self.rows_worth(top, rows_max).min(rows_max),
        }
    }

    /// The fewest rows that take about as little time for each row as any number up to `top`, a
    /// bucket; `rows_max` if that is the most of which enough is known, so that more may be better.
    fn rows_worth(&self, top: usize, rows_max: usize) -> usize {
        let known = || (0..=top).filter(|bucket| self.buckets[*bucket].n >= ENOUGH);
        let per_row = |bucket: &usize| self.buckets[*bucket].row_nanos;
        let Some(least) = known().map(|bucket| per_row(&bucket)).min() else { return rows_max };
        let enough = least.saturating_add(least / WORTH_PART);
        match known().find(|bucket| per_row(bucket) <= enough) {
            Some(bucket) if known().any(|other| other > bucket) => 1 << bucket,
            _ => rows_max,
        }
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

/// A mean in which the new value counts for one part in `memory`.
fn blend(mean: u64, new: u64, memory: u64) -> u64 {
    // Nothing measured is near the range of the type; saturation is for the clock's mishaps.
    mean.saturating_mul(memory - 1).saturating_add(new) / memory
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

    /// The number of rows chosen of 64 waiting ones, when batches take so long and many have run.
    fn chosen(took: impl Fn(usize) -> Duration) -> usize {
        let mut costs = Costs::default();
        let mut last = Vec::new();
        for _ in 0..600 {
            let rows = costs.choose(64, 64);
            costs.note(rows, took(rows));
            last.push(rows);
        }
        let usual = |rows: &usize| last[300..].iter().filter(|other| *other == rows).count();
        let most = last.iter().copied().max_by_key(usual).unwrap();
        assert!(usual(&most) * 50 > 300 * 48, "others are tried seldom: {most} of {last:?}");
        most
    }

    #[test]
    fn batches_are_as_large_as_they_gain() {
        let micros = |micros: usize| Duration::from_micros(micros as u64);
        // A fixed part, and nothing but rows.
        assert_eq!(chosen(|rows| micros(40_000 + 1000 * rows)), 64);
        assert_eq!(chosen(|rows| micros(4000 + 1000 * rows)), 32);
        assert_eq!(chosen(|rows| micros(270 * rows)), 1);
        // A few rows share the weights; many fall out of the cache.
        assert_eq!(chosen(|rows| micros(90 + 20 * rows + rows * rows)), 8);
        // What waits alone, or in twos, is not held back.
        let mut costs = Costs::default();
        assert_eq!((costs.choose(1, 64), costs.choose(2, 64)), (64, 64));
    }

    #[test]
    fn the_first_run_of_a_size_is_not_believed() {
        let mut costs = Costs::default();
        [100, 10].into_iter().for_each(|took| costs.note(4, millis(took)));
        assert_eq!(costs.predict(4), Some(millis(10)));
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
