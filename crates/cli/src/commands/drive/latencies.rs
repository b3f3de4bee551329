//! `Latencies`: counts of durations, told apart to 1.6 %.

use std::time::Duration;

/// Each power of two is divided into so many parts.
const PARTS: u64 = 64;

/// Counts of durations by size.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// By the number of the bucket.
    counts: Vec<u64>,
    n: u64,
    longest: Duration,
}

impl Latencies {
    pub(super) fn note(&mut self, took: Duration) {
        let bucket = bucket(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.n += 1;
        self.longest = self.longest.max(took);
    }

    /// Returns the number of latencies.
    pub(super) fn n(&self) -> u64 {
        self.n
    }

    /// The duration that so many per cent do not exceed.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place among less than 2^52"
    )]
    pub(super) fn percentile(&self, percent: f64) -> Duration {
        let wanted = (self.n as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (number, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(upper(number as u64)).min(self.longest);
            }
        }
        self.longest
    }
}

/// Values below `PARTS` have a bucket each; above, a power of two has `PARTS`.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(PARTS.ilog2() + 1);
    usize::try_from(u64::from(shift) * PARTS + (nanos >> shift)).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn upper(bucket: u64) -> u64 {
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    let part = bucket - shift * PARTS;
    ((part + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_few_per_cent() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50.0), Duration::ZERO);
        (1..=1000u64).for_each(|micros| latencies.note(Duration::from_micros(micros)));
        for (percent, expected) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1000.0)] {
            let got = latencies.percentile(percent).as_secs_f64() * 1e6;
            assert!((got / expected - 1.0f64).abs() < 0.02, "{percent}: {got}");
        }
    }

    #[test]
    fn buckets_rise_and_cover() {
        for nanos in (0..5000).chain((1..60).map(|power| (1u64 << power) + 3)) {
            let number = bucket(nanos) as u64;
            assert!(
                upper(number) >= nanos && (number == 0 || upper(number - 1) < nanos),
                "{nanos}"
            );
        }
    }
}
