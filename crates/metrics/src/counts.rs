//! A histogram that one owner writes.

use std::time::Duration;

use crate::metric::Value;

/// `N` counts of values by size, for an owner that has a lock already: the count at `i` is of the
/// values up to 2^(`BITS` · i) and above the one before, the last of all above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts<const N: usize, const BITS: usize = 1> {
    counts: [u64; N],
    sum: u64,
    n: u64,
}

/// The limits of `N` counts, in a unit of which a value has `scale`.
const fn limits<const N: usize>(bits: usize, scale: f64) -> [f64; N] {
    let mut limits = [0.0; N];
    let mut at = 0;
    while at + 1 < N {
        limits[at] = (1u64 << (bits * at)) as f64 * scale;
        at += 1;
    }
    limits
}

impl<const N: usize, const BITS: usize> Counts<N, BITS> {
    const LIMITS: &'static [f64; N] = &limits(BITS, 1.0);
    /// The limits of microseconds.
    const SECONDS: &'static [f64; N] = &limits(BITS, 1e-6);

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        let bits = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        self.counts[bits.div_ceil(BITS).min(N - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
        self.n += 1;
    }

    /// Counts a time, in microseconds.
    pub fn add_time(&mut self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The number of values.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The number of values up to each limit, where there are any: `(limit, values)`.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(at, count)| (1 << (BITS * at), *count))
    }

    /// The mean; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// A value that `percent` per cent of all do not exceed, to the next limit.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.n * percent).div_ceil(100);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return 1 << (BITS * at);
            }
        }
        0
    }

    /// A copy for the page.
    pub fn value(&self) -> Value {
        let (limits, counts) = (&Self::LIMITS[..N - 1], self.counts.to_vec());
        Value::Histogram { limits, counts, sum: self.sum as f64 }
    }

    /// A copy for the page in seconds, of counts of microseconds.
    pub fn seconds(&self) -> Value {
        let (limits, counts) = (&Self::SECONDS[..N - 1], self.counts.to_vec());
        Value::Histogram { limits, counts, sum: self.sum as f64 / 1e6 }
    }
}

impl<const N: usize, const BITS: usize> Default for Counts<N, BITS> {
    fn default() -> Self {
        Self { counts: [0; N], sum: 0, n: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(values: &[u64]) -> Counts<5> {
        let mut counts = Counts::default();
        values.iter().for_each(|value| counts.add(*value));
        counts
    }

    #[test]
    fn a_value_counts_up_to_the_next_power_of_two() {
        let counts = counted(&[0, 1, 2, 3, 4, 5, 8, 9, u64::MAX]);
        assert_eq!(counts.counts, [2, 1, 2, 2, 2]);
        assert_eq!((counts.n(), counts.sum), (9, u64::MAX));
        let filled: Vec<(u64, u64)> = counted(&[1, 3, 3]).filled().collect();
        assert_eq!(filled, [(1, 1), (4, 2)]);
    }

    #[test]
    fn limits_may_lie_further_apart() {
        let mut counts = Counts::<4, 3>::default();
        [0, 1, 2, 8, 9, 64, 65].into_iter().for_each(|value| counts.add(value));
        assert_eq!(counts.counts, [2, 2, 2, 1]);
        let Value::Histogram { limits, .. } = counts.value() else { panic!() };
        assert_eq!(limits, [1.0, 8.0, 64.0]);
    }

    #[test]
    fn means_and_percentiles_are_those_of_the_values() {
        let counts = counted(&[1, 1, 1, 7]);
        assert_eq!((counts.percentile(50), counts.percentile(99)), (1, 8));
        assert!((counts.mean() - 2.5).abs() < 1e-9);
        assert_eq!(
            (Counts::<5>::default().mean(), Counts::<5>::default().percentile(50)),
            (0.0, 0)
        );
    }

    #[test]
    fn microseconds_are_shown_as_seconds() {
        let mut counts = Counts::<32>::default();
        counts.add_time(Duration::from_millis(3));
        let Value::Histogram { limits, counts, sum } = counts.seconds() else { panic!() };
        assert_eq!((limits.len(), counts.len()), (31, 32));
        assert!((limits[12] - 0.004_096).abs() < 1e-12 && counts[12] == 1);
        assert!((sum - 0.003).abs() < 1e-12);
    }
}
