//! A copy of the counters, for the metrics page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics::{Histogram, Point, Value};
use status::Code;

use super::cells::Cell;
use super::{APIS, Api, ENTRYPOINTS, Entrypoint, ModelStats, Stats};

impl Stats {
    /// The number of requests by model and status.
    pub fn request_count(&self) -> Vec<Point> {
        self.points(request_count)
    }

    /// The time of requests that ended well, in microseconds, by model, API and entrypoint.
    pub fn request_latency(&self) -> Vec<Point> {
        self.points(request_latency)
    }

    /// The time of runs that ended well, in microseconds, by model and API.
    pub fn runtime_latency(&self) -> Vec<Point> {
        self.points(runtime_latency)
    }

    /// The numbers of examples of `MultiInference`, by model.
    pub fn example_counts(&self) -> Vec<Point> {
        self.points(example_counts)
    }

    /// The sum of the examples of `MultiInference`, by model.
    pub fn example_count_total(&self) -> Vec<Point> {
        self.points(example_count_total)
    }

    /// The time of runs that ended well, in seconds, by model, version, signature and API.
    pub fn run_seconds(&self) -> Vec<Point> {
        self.points(run_seconds)
    }

    /// The number of runs that failed, by model, version, signature, API and code.
    pub fn run_failures(&self) -> Vec<Point> {
        self.points(run_failures)
    }

    /// The number of requests in flight, by model.
    pub fn in_flight(&self) -> Vec<Point> {
        self.points(in_flight)
    }

    /// The points of all models, by name.
    fn points(&self, of_model: fn(&str, &ModelStats) -> Vec<Point>) -> Vec<Point> {
        let models = self.models.load_full();
        let models: BTreeMap<&str, &ModelStats> =
            models.iter().map(|(name, stats)| (&**name, &**stats)).collect();
        models.iter().flat_map(|(model, stats)| of_model(model, stats)).collect()
    }
}

fn request_count(model: &str, stats: &ModelStats) -> Vec<Point> {
    let point = |(code, count): (i32, u64)| {
        let labels = vec![("model_name", model.to_owned()), ("status", code_name(code))];
        Point { labels, value: Value::Count(count) }
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
        point(labels, histogram.value())
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
        point(labels, histogram.value())
    };
    APIS.iter().zip(&stats.runtime).filter_map(point).collect()
}

fn example_counts(model: &str, stats: &ModelStats) -> Vec<Point> {
    let labels = vec![("model", model.to_owned())];
    point(labels, stats.n_examples.value()).into_iter().collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of counts")]
fn example_count_total(model: &str, stats: &ModelStats) -> Vec<Point> {
    let total = stats.n_examples.sum() as u64;
    let labels = vec![("model", model.to_owned())];
    let point = (total > 0).then_some(Point { labels, value: Value::Count(total) });
    point.into_iter().collect()
}

/// The time of runs in seconds, by version, signature and API.
fn run_seconds(model: &str, stats: &ModelStats) -> Vec<Point> {
    let points = |cell: &Arc<Cell>| -> Vec<Point> {
        let point = |(api, histogram): (Api, &Histogram)| {
            point(run_labels(model, cell, api), histogram.seconds())
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
            Point { labels, value: Value::Count(count) }
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

/// The name of a canonical number, with that of success.
pub(super) fn code_name(number: i32) -> String {
    let failure = || Code::from_number(number).unwrap_or(Code::Unknown).name();
    if number == 0 { "OK".to_owned() } else { failure().to_owned() }
}

fn in_flight(model: &str, stats: &ModelStats) -> Vec<Point> {
    let value = Value::Signed(stats.in_flight.load(Ordering::Relaxed));
    vec![Point { labels: vec![("model_name", model.to_owned())], value }]
}

/// A point, if anything was counted.
fn point(labels: Vec<(&'static str, String)>, value: Value) -> Option<Point> {
    (!value.is_empty()).then_some(Point { labels, value })
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
