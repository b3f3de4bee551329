//! Counts of values by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

/// Ten microseconds, and 1.8 times as much each time: up to about twenty minutes.
pub(crate) static LATENCY_LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| exponential(10.0, 1.8, 33));

/// The upper limits by which times in microseconds are counted, as TensorFlow Serving has them.
pub fn latency_limits() -> &'static [f64] {
    &LATENCY_LIMITS
}

/// Powers of two.
pub(crate) static SIZE_LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| exponential(1.0, 2.0, 15));

/// As `Buckets::Exponential` of TensorFlow.
fn exponential(scale: f64, growth: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(scale), |limit| Some(limit * growth)).take(count).collect()
}

/// How many values fell below each limit and not below the one before.
///
/// Most histograms of a model never have a value, and all stay for ever: an empty one is small.
#[derive(Debug)]
pub(crate) struct Histogram {
    limits: &'static LazyLock<Vec<f64>>,
    /// Once there is a value: one count more than there are limits, and then the bits of a double,
    /// the sum.
    filled: OnceLock<Box<[AtomicU64]>>,
}

impl Histogram {
    pub(crate) fn new(limits: &'static LazyLock<Vec<f64>>) -> Self {
        Self { limits, filled: OnceLock::new() }
    }

    pub(crate) fn add(&self, value: f64) {
        let bucket = self.limits.partition_point(|limit| *limit <= value);
        let zeros = || std::iter::repeat_with(AtomicU64::default);
        let filled = self.filled.get_or_init(|| zeros().take(self.limits.len() + 2).collect());
        filled[bucket].fetch_add(1, Ordering::Relaxed);
        let added = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // It never fails: there is always a sum.
        let _ =
            filled[self.limits.len() + 1].fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    pub(crate) fn limits(&self) -> &'static [f64] {
        self.limits
    }

    pub(crate) fn counts(&self) -> Vec<u64> {
        let n_counts = self.limits.len() + 1;
        let Some(filled) = self.filled.get() else { return vec![0; n_counts] };
        filled[..n_counts].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn sum(&self) -> f64 {
        let sum = self.filled.get().map(|filled| &filled[self.limits.len() + 1]);
        sum.map_or(0.0, |sum| f64::from_bits(sum.load(Ordering::Relaxed)))
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
        assert_eq!(LATENCY_LIMITS.len(), 33);
        assert_eq!(SIZE_LIMITS.last(), Some(&16384.0));
    }
}
