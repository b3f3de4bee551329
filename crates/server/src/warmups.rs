//! Counts the warm-ups of versions: how many records they read, how long they took, how they ended.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Histogram, LATENCY_LIMITS, Point, Value};
use parking_lot::Mutex;

/// The number of paths and outcomes that are counted one by one; beyond it the first are forgotten.
const KINDS_MAX: usize = 1000;

/// The counts, by the path of the version and the name of a code.
#[derive(Debug, Default)]
pub(crate) struct Warmups {
    by_kind: Mutex<BTreeMap<(String, &'static str), Counts>>,
}

/// The warm-ups of one path that ended alike.
#[derive(Debug)]
struct Counts {
    n_records: u64,
    micros: Histogram,
}

impl Warmups {
    /// A warm-up ended, well (`OK`) or with a code.
    pub(crate) fn count(&self, path: &str, status: &'static str, n_records: u64, took: Duration) {
        let mut by_kind = self.by_kind.lock();
        let kind = (path.to_owned(), status);
        if by_kind.len() >= KINDS_MAX && !by_kind.contains_key(&kind) {
            by_kind.pop_first();
        }
        let warmups = by_kind
            .entry(kind)
            .or_insert_with(|| Counts { n_records: 0, micros: Histogram::new(&LATENCY_LIMITS) });
        warmups.n_records += n_records;
        warmups.micros.add(took.as_secs_f64() * 1e6);
    }

    /// The time of warm-ups in microseconds, by path and outcome.
    pub(crate) fn latency(&self) -> Vec<Point> {
        self.points(|counts| counts.micros.value())
    }

    /// The number of records that warm-ups read, by path and outcome.
    pub(crate) fn records(&self) -> Vec<Point> {
        self.points(|counts| Value::Count(counts.n_records))
    }

    fn points(&self, value: fn(&Counts) -> Value) -> Vec<Point> {
        let by_kind = self.by_kind.lock();
        let point = |((path, status), counts): (&(String, &'static str), &Counts)| {
            let labels = vec![("model_path", path.clone()), ("status", (*status).to_owned())];
            Point::new(labels, value(counts))
        };
        by_kind.iter().map(point).collect()
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
        let (latency, records) = (warmups.latency(), warmups.records());
        let labels: Vec<&str> = records.iter().map(|point| &*point.labels[1].1).collect();
        assert_eq!(labels, ["OK", "DATA_LOSS"]);
        assert_eq!(records[0].value, Value::Count(7));
        let Value::Histogram { counts, sum, .. } = &latency[0].value else { panic!() };
        assert_eq!((&counts[..3], *sum), (&[1, 1, 0][..], 17.0));
        let Value::Histogram { counts, .. } = &latency[1].value else { panic!() };
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
