//! A histogram that many threads write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

use crate::metric::Value;

/// The upper limits of a histogram's counts; all values above the last are counted together.
pub type Limits = LazyLock<Vec<f64>>;

/// The limits for microseconds that TensorFlow Serving has: ten, and 1.8 times as much each time,
/// up to about twenty minutes.
pub static LATENCY_LIMITS: Limits = LazyLock::new(|| exponential(10.0, 1.8, 33));

/// The same limits in seconds.
static LATENCY_SECONDS: Limits =
    LazyLock::new(|| LATENCY_LIMITS.iter().map(|micros| micros / 1e6).collect());

/// The limits for numbers of examples that TensorFlow Serving has: powers of two.
pub static SIZE_LIMITS: Limits = LazyLock::new(|| exponential(1.0, 2.0, 15));

/// As `Buckets::Exponential` of TensorFlow.
fn exponential(scale: f64, growth: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(scale), |limit| Some(limit * growth)).take(count).collect()
}

/// Counts of values by size, without a lock: a value is counted where it is below a limit and not
/// below the one before.
///
/// All stay for ever, most never have a value, and the values of others are much alike: an empty
/// one is small, and counts are made where values are.
#[derive(Debug)]
pub struct Histogram {
    limits: &'static Limits,
    filled: OnceLock<Box<HistogramFilled>>,
}

/// The counts of a histogram: one more than there are limits.
#[derive(Debug, Default)]
struct HistogramFilled {
    /// The bits of a double, the sum.
    sum: AtomicU64,
    parts: [OnceLock<Box<HistogramPart>>; N_PARTS],
}

/// Counts that stand side by side.
type HistogramPart = [AtomicU64; PART];

const PART: usize = 8;

/// As many as the longest histogram has.
const N_PARTS: usize = 5;

impl Histogram {
    /// An empty histogram with these limits, of which there are at most 39.
    pub fn new(limits: &'static Limits) -> Self {
        Self { limits, filled: OnceLock::new() }
    }

    /// Counts a value. Allocates only for the first values of a size.
    pub fn add(&self, value: f64) {
        let bucket = self.limits.partition_point(|limit| *limit <= value);
        let filled = self.filled.get_or_init(Box::default);
        let (part, at) = (bucket / PART, bucket % PART);
        filled.parts[part].get_or_init(Box::default)[at].fetch_add(1, Ordering::Relaxed);
        let added = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // It never fails: there is always a sum.
        let _ = filled.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// A copy, in the unit of the limits.
    pub fn value(&self) -> Value {
        Value::Histogram { limits: self.limits, counts: self.counts(), sum: self.sum() }
    }

    /// A copy in seconds, of a histogram with [`LATENCY_LIMITS`].
    pub fn seconds(&self) -> Value {
        assert!(std::ptr::eq(self.limits, &raw const LATENCY_LIMITS), "it counts microseconds");
        let (counts, sum) = (self.counts(), self.sum() / 1e6);
        Value::Histogram { limits: &LATENCY_SECONDS, counts, sum }
    }

    /// The upper limits of the counts.
    pub fn limits(&self) -> &'static [f64] {
        self.limits
    }

    /// The counts: one more than there are limits.
    pub fn counts(&self) -> Vec<u64> {
        let n_counts = self.limits.len() + 1;
        let Some(filled) = self.filled.get() else { return vec![0; n_counts] };
        let part = |part: &OnceLock<Box<HistogramPart>>| {
            let count = |part: &HistogramPart, at: usize| part[at].load(Ordering::Relaxed);
            (0..PART).map(|at| part.get().map_or(0, |part| count(part, at))).collect::<Vec<_>>()
        };
        filled.parts.iter().flat_map(part).take(n_counts).collect()
    }

    /// The sum of the values.
    pub fn sum(&self) -> f64 {
        let filled = self.filled.get();
        filled.map_or(0.0, |filled| f64::from_bits(filled.sum.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_below_the_first_limit_above_it() {
        let histogram = Histogram::new(&SIZE_LIMITS);
        for value in [0.0, 1.0, 3.0, 4.0, 1e9] {
            histogram.add(value);
        }
        let counts = histogram.counts();
        assert_eq!(counts[..4], [1, 1, 1, 1]);
        assert_eq!((counts.len(), counts[15], histogram.sum()), (16, 1, 1e9 + 8.0));
        assert_eq!(SIZE_LIMITS.last(), Some(&16384.0));
    }

    #[test]
    fn values_of_any_size_are_counted() {
        let histogram = Histogram::new(&LATENCY_LIMITS);
        let below = LATENCY_LIMITS.iter().map(|limit| limit * 0.999);
        below.chain([f64::INFINITY]).for_each(|value| histogram.add(value));
        assert_eq!(histogram.counts(), [1; 34]);
    }

    #[test]
    fn microseconds_are_shown_as_seconds() {
        let histogram = Histogram::new(&LATENCY_LIMITS);
        histogram.add(5.0);
        histogram.add(2_000_000.0);
        let Value::Histogram { limits, counts, sum } = histogram.seconds() else { panic!() };
        assert_eq!((limits[0], counts[0], sum), (1e-5, 1, 2.000_005));
        assert_eq!((limits.len(), counts.len()), (33, 34));
    }
}
