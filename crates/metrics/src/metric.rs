//! A metric and its values.

use std::time::Duration;

/// A metric and its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The name: one of ours (`tensord_…`), or a path of TensorFlow's such as
    /// `/tensorflow/serving/request_count`.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The text of its `# HELP` line; empty if it has none, as TensorFlow's metrics.
    pub help: &'static str,
    /// The points; there may be none.
    pub points: Vec<Point>,
}

/// The kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that only grow.
    Counter,
    /// Numbers that go up and down.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

impl Kind {
    /// Prometheus' word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value of a metric for some labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Names and values of the labels, in the order they are shown.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

impl Point {
    /// A point with these labels.
    pub fn new(labels: Vec<(&'static str, String)>, value: Value) -> Self {
        Self { labels, value }
    }
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A count, or a number of bytes.
    Count(u64),
    /// A count that may go below zero.
    Signed(i64),
    /// A time.
    Seconds(Duration),
    /// Counts of values by size.
    Histogram {
        /// The upper limits of all counts but the last, which has none.
        limits: &'static [f64],
        /// The number of values below each limit and not below the one before.
        counts: Vec<u64>,
        /// The sum of the values.
        sum: f64,
    },
}

impl Value {
    /// The histogram has no values yet; other values are never empty.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Histogram { counts, .. } if counts.iter().all(|count| *count == 0))
    }
}
