//! A copy of the counters, for the metrics page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::error::Code;

use super::cells::Cell;
use super::histogram::Histogram;
use super::{APIS, Api, ENTRYPOINTS, Entrypoint, ModelStats, Stats};

/// A metric and its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, as TensorFlow Serving's own code has it, such as
    /// `/tensorflow/serving/request_count`.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Its points; there may be none.
    pub points: Vec<Point>,
}

/// What the values of a metric are.
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

/// A value of a metric. All points of a metric have values of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number that only grows.
    Counter(u64),
    /// A number that goes up and down.
    Gauge(i64),
    /// Counts of values by size.
    Histogram {
        /// The upper limits of all counts but the last, which has none.
        limits: &'static [f64],
        /// How many values were below each limit and not below the one before.
        counts: Vec<u64>,
        /// The sum of the values.
        sum: f64,
    },
}

impl Stats {
    /// A copy of all counters.
    pub fn snapshot(&self) -> Vec<Metric> {
        let models = self.models.load_full();
        let models: BTreeMap<&str, &ModelStats> =
            models.iter().map(|(name, stats)| (&**name, &**stats)).collect();
        let metric = |name, kind, points: fn(&str, &ModelStats) -> Vec<Point>| Metric {
            name,
            kind,
            points: models.iter().flat_map(|(model, stats)| points(model, stats)).collect(),
        };
        use Kind::{Counter, Gauge, Histogram};
        vec![
            metric("/tensorflow/serving/request_count", Counter, request_count),
            metric("/tensorflow/serving/request_latency", Histogram, request_latency),
            metric("/tensorflow/serving/runtime_latency", Histogram, runtime_latency),
            metric("/tensorflow/serving/request_example_counts", Histogram, example_counts),
            metric("/tensorflow/serving/request_example_count_total", Counter, example_count_total),
            metric("/tensord/run_latency", Histogram, run_latency),
            metric("/tensord/run_failures", Counter, run_failures),
            metric("/tensord/requests_in_flight", Gauge, in_flight),
        ]
    }
}

fn request_count(model: &str, stats: &ModelStats) -> Vec<Point> {
    let point = |(code, count): (i32, u64)| {
        let labels = vec![("model_name", model.to_owned()), ("status", code_name(code))];
        Point { labels, value: Value::Counter(count) }
    };
    let counts = stats.by_code.iter().map(|count| count.load(Ordering::Relaxed));
    (0..).zip(counts).filter(|(_, count)| *count > 0).map(point).collect()
}

fn request_latency(model: &str, stats: &ModelStats) -> Vec<Point> {
    let cells = APIS.iter().flat_map(|api| ENTRYPOINTS.iter().map(move |door| (*api, *door)));
    let point = |((api, door), histogram): ((Api, Entrypoint), &Histogram)| {
        let labels = vec![
            ("model_name", model.to_owned()),
            ("API", api.name(door).to_owned()),
            ("entrypoint", door.name().to_owned()),
        ];
        histogram_point(labels, histogram)
    };
    cells.zip(&stats.latency).filter_map(point).collect()
}

fn runtime_latency(model: &str, stats: &ModelStats) -> Vec<Point> {
    let point = |(api, histogram): (&Api, &Histogram)| {
        let labels = vec![
            ("model_name", model.to_owned()),
            ("API", api.name(Entrypoint::Grpc).to_owned()),
            ("runtime", "TF1".to_owned()),
        ];
        histogram_point(labels, histogram)
    };
    APIS.iter().zip(&stats.runtime).filter_map(point).collect()
}

fn example_counts(model: &str, stats: &ModelStats) -> Vec<Point> {
    let labels = vec![("model", model.to_owned())];
    histogram_point(labels, &stats.n_examples).into_iter().collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of counts")]
fn example_count_total(model: &str, stats: &ModelStats) -> Vec<Point> {
    let total = stats.n_examples.sum() as u64;
    let labels = vec![("model", model.to_owned())];
    let point = (total > 0).then_some(Point { labels, value: Value::Counter(total) });
    point.into_iter().collect()
}

/// The time of runs by version, signature and API.
fn run_latency(model: &str, stats: &ModelStats) -> Vec<Point> {
    let points = |cell: &Arc<Cell>| -> Vec<Point> {
        let point = |(api, histogram): (Api, &Histogram)| {
            histogram_point(run_labels(model, cell, api), histogram)
        };
        cell.latency().filter_map(point).collect()
    };
    stats.cells.all().iter().flat_map(points).collect()
}

/// The runs that failed, by version, signature, API and code.
fn run_failures(model: &str, stats: &ModelStats) -> Vec<Point> {
    let points = |cell: &Arc<Cell>| -> Vec<Point> {
        let point = |(api, code, count): (Api, i32, u64)| {
            let mut labels = run_labels(model, cell, api);
            labels.push(("code", code_name(code)));
            Point { labels, value: Value::Counter(count) }
        };
        cell.failures().map(point).collect()
    };
    stats.cells.all().iter().flat_map(points).collect()
}

fn run_labels(model: &str, cell: &Cell, api: Api) -> Vec<(&'static str, String)> {
    vec![
        ("model_name", model.to_owned()),
        ("version", cell.version.to_string()),
        ("signature", cell.signature.to_string()),
        ("API", api.name(Entrypoint::Grpc).to_owned()),
    ]
}

fn code_name(code: i32) -> String {
    Code::try_from(code).unwrap_or(Code::Unknown).as_str_name().to_owned()
}

fn in_flight(model: &str, stats: &ModelStats) -> Vec<Point> {
    let value = Value::Gauge(stats.in_flight.load(Ordering::Relaxed));
    vec![Point { labels: vec![("model_name", model.to_owned())], value }]
}

/// A point, if anything was counted.
fn histogram_point(labels: Vec<(&'static str, String)>, histogram: &Histogram) -> Option<Point> {
    let counts = histogram.counts();
    let (limits, sum) = (histogram.limits(), histogram.sum());
    let is_used = counts.iter().any(|count| *count > 0);
    is_used.then_some(Point { labels, value: Value::Histogram { limits, counts, sum } })
}

impl Api {
    /// The name in the metrics, which is another one over REST.
    pub(crate) fn name(self, door: Entrypoint) -> &'static str {
        match (self, door) {
            (Self::Predict, Entrypoint::Grpc) => "Predict",
            (Self::Classify, Entrypoint::Grpc) => "Classify",
            (Self::Regress, Entrypoint::Grpc) => "Regress",
            (Self::MultiInference, _) => "MultiInference",
            (Self::Predict, Entrypoint::Rest) => "predict",
            (Self::Classify, Entrypoint::Rest) => "classify",
            (Self::Regress, Entrypoint::Rest) => "regress",
            (Self::Look, _) => "",
        }
    }
}

impl Entrypoint {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "GRPC",
            Self::Rest => "REST",
        }
    }
}
