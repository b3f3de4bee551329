//! Counts the warm-ups of versions: how many records they read, how long they took, how they ended.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{Kind, Metric, Point, Value, latency_limits};
use parking_lot::Mutex;

/// How many paths and outcomes are counted one by one; beyond that the first are forgotten.
const KINDS_MAX: usize = 1000;

/// The counts, by the path of the version and the name of a code.
#[derive(Debug, Default)]
pub(crate) struct Warmups {
    by_kind: Mutex<BTreeMap<(String, &'static str), Counts>>,
}

/// The warm-ups of one path that ended alike.
#[derive(Debug, Clone)]
struct Counts {
    n_records: u64,
    /// How many took less than each limit, and not less than the one before.
    counts: Vec<u64>,
    micros: f64,
}

impl Warmups {
    /// A warm-up ended, well (`OK`) or with a code.
    pub(crate) fn count(&self, path: &str, status: &'static str, n_records: u64, took: Duration) {
        let limits = latency_limits();
        let mut by_kind = self.by_kind.lock();
        let kind = (path.to_owned(), status);
        if by_kind.len() >= KINDS_MAX && !by_kind.contains_key(&kind) {
            by_kind.pop_first();
        }
        let warmups = by_kind.entry(kind).or_insert_with(|| Counts {
            n_records: 0,
            counts: vec![0; limits.len() + 1],
            micros: 0.0,
        });
        let micros = took.as_secs_f64() * 1e6;
        warmups.n_records += n_records;
        warmups.counts[limits.partition_point(|limit| *limit <= micros)] += 1;
        warmups.micros += micros;
    }

    /// A copy, as metrics of TensorFlow Serving's names.
    pub(crate) fn snapshot(&self) -> [Metric; 2] {
        let by_kind = self.by_kind.lock().clone();
        let (mut latency, mut records) = (Vec::new(), Vec::new());
        for ((path, status), Counts { n_records, counts, micros }) in by_kind {
            let labels = vec![("model_path", path), ("status", status.to_owned())];
            let limits = latency_limits();
            let value = Value::Histogram { limits, counts, sum: micros };
            latency.push(Point { labels: labels.clone(), value });
            records.push(Point { labels, value: Value::Counter(n_records) });
        }
        let metric = |name, kind, points| Metric { name, kind, points };
        [
            metric("/tensorflow/serving/model_warmup_latency", Kind::Histogram, latency),
            metric("/tensorflow/serving/model_warmup_records_read", Kind::Counter, records),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_ups_are_counted_by_path_and_outcome() {
        let warmups = Warmups::default();
        warmups.count("/m/1", "OK", 5, Duration::from_micros(5));
        warmups.count("/m/1", "OK", 2, Duration::from_micros(12));
        warmups.count("/m/2", "DATA_LOSS", 0, Duration::from_secs(7200));
        let [latency, records] = warmups.snapshot();
        let labels: Vec<&str> = records.points.iter().map(|point| &*point.labels[1].1).collect();
        assert_eq!(labels, ["OK", "DATA_LOSS"]);
        assert_eq!(records.points[0].value, Value::Counter(7));
        let Value::Histogram { counts, sum, .. } = &latency.points[0].value else { panic!() };
        assert_eq!((&counts[..3], *sum), (&[1, 1, 0][..], 17.0));
        let Value::Histogram { counts, .. } = &latency.points[1].value else { panic!() };
        assert_eq!(counts.last(), Some(&1));
    }

    #[test]
    fn paths_do_not_fill_the_memory() {
        let warmups = Warmups::default();
        for number in 0..2 * KINDS_MAX {
            warmups.count(&number.to_string(), "OK", 1, Duration::ZERO);
        }
        assert_eq!(warmups.by_kind.lock().len(), KINDS_MAX);
    }
}
