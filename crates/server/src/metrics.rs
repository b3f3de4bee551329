//! The metrics page: every counter of the server, in Prometheus' text format.
//!
//! Names are TensorFlow Serving's where it has the metric, and written as its exporter writes them:
//! `/tensorflow/serving/request_count` becomes `:tensorflow:serving:request_count`.

use std::fmt::Write as _;
use std::sync::Arc;

use api::{Context, Kind, Metric, Point, Value};
use lifecycle::State;

use crate::external::External;
use crate::loads::Loads;
use crate::memory;
use crate::request_log::RequestLog;
use crate::scheduler::{self, Scheduler};
use crate::warmups::Warmups;

/// Who counts.
#[derive(Clone)]
pub(crate) struct Counters {
    /// Requests, and the models they are for.
    pub(crate) requests: Context,
    /// Loads of versions.
    pub(crate) loads: Arc<Loads>,
    /// Warm-ups of versions.
    pub(crate) warmups: Arc<Warmups>,
    /// Requests that were logged.
    pub(crate) log: Arc<RequestLog>,
    /// Queues, lanes and the memory of devices.
    pub(crate) scheduler: Scheduler,
    /// TensorFlow's workers and GPUs.
    pub(crate) external: Arc<External>,
}

impl Counters {
    /// Every metric, in the order of the page.
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.requests.stats.snapshot();
        metrics.extend(self.loads.snapshot());
        metrics.extend(self.warmups.snapshot());
        metrics.push(self.log.snapshot());
        metrics.extend(scheduler::metrics(&self.scheduler));
        metrics.push(bytes_in_flight(&self.requests));
        metrics.push(states(&self.requests));
        metrics.extend(memory::metrics(&self.scheduler.devices));
        metrics.extend(self.external.metrics());
        metrics
    }

    /// The page.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        for metric in self.metrics() {
            write_metric(&mut page, &metric);
        }
        page
    }
}

fn bytes_in_flight(context: &Context) -> Metric {
    let value = Value::Gauge(i64::try_from(context.budget.used()).unwrap_or(i64::MAX));
    let points = vec![Point { labels: Vec::new(), value }];
    Metric { name: "/tensord/request_bytes_in_flight", kind: Kind::Gauge, points }
}

/// How many versions of each model are in which state.
fn states(context: &Context) -> Metric {
    let mut points = Vec::new();
    for model in context.models.snapshot() {
        let states = [State::Start, State::Loading, State::Available, State::Unloading, State::End];
        for state in states {
            let n = model.versions.iter().filter(|version| version.state == state).count();
            let labels =
                vec![("model_name", model.name.clone()), ("state", state.name().to_owned())];
            points
                .push(Point { labels, value: Value::Gauge(i64::try_from(n).unwrap_or(i64::MAX)) });
        }
    }
    Metric { name: "/tensord/model_versions", kind: Kind::Gauge, points }
}

fn write_metric(page: &mut String, metric: &Metric) {
    let name = name(metric.name);
    // Writing to a string does not fail, here and below.
    let _ = writeln!(page, "# TYPE {name} {}", metric.kind.name());
    for point in &metric.points {
        let labels = labels(&point.labels);
        let _ = match &point.value {
            Value::Counter(number) => writeln!(page, "{name}{{{labels}}} {number}"),
            Value::Gauge(number) => writeln!(page, "{name}{{{labels}}} {number}"),
            Value::Histogram { limits, counts, sum } => {
                write_histogram(page, &name, &labels, (limits, counts, *sum));
                Ok(())
            }
        };
    }
}

fn write_histogram(
    page: &mut String,
    name: &str,
    labels: &str,
    (limits, counts, sum): (&[f64], &[u64], f64),
) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut total = 0;
    let limits = limits.iter().map(|limit| significant(*limit));
    for (count, limit) in counts.iter().zip(limits.chain(["+Inf".to_owned()])) {
        total += count;
        let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{limit}\"}} {total}");
    }
    let _ = writeln!(page, "{name}_sum{{{labels}}} {}", significant(sum));
    let _ = writeln!(page, "{name}_count{{{labels}}} {total}");
}

/// A name of TensorFlow's, as its exporter writes it.
fn name(path: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { ':' };
    let name: String = path.chars().map(clean).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn labels(labels: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' | '"' => text.extend(['\\', c]),
                '\n' => text.push_str("\\n"),
                _ => text.push(c),
            }
        }
        text.push('"');
    }
    text
}

/// A number with six significant digits, as C's `%g` writes it.
fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 { "0".to_owned() } else { number.to_string() };
    }
    let text = format!("{number:.5e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let stripped = |text: &str| {
        let has_point = text.contains('.');
        let text = if has_point { text.trim_end_matches('0') } else { text };
        text.trim_end_matches('.').to_owned()
    };
    if (-4..6).contains(&exponent) {
        let n_decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return stripped(&format!("{number:.n_decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", stripped(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_significant_digits() {
        for (number, expected) in [
            (0.0, "0"),
            (10.0, "10"),
            (18.0, "18"),
            (104.976, "104.976"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.9, "1e+06"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_345, "1.2345e-05"),
            (100_000.0, "100000"),
        ] {
            assert_eq!(significant(number), expected);
        }
    }

    #[test]
    fn labels_are_escaped() {
        let text = labels(&[("model_name", "a\\b\"c\nd".to_owned()), ("status", "OK".to_owned())]);
        assert_eq!(text, r#"model_name="a\\b\"c\nd",status="OK""#);
    }

    #[test]
    fn metrics_without_points_are_named() {
        let mut page = String::new();
        let metric = Metric { name: "/a/b-c", kind: Kind::Counter, points: Vec::new() };
        write_metric(&mut page, &metric);
        assert_eq!(page, "# TYPE :a:b:c counter\n");
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut page = String::new();
        let value = Value::Histogram { limits: &[10.0, 18.0], counts: vec![1, 2, 3], sum: 1234.5 };
        let labels = vec![("model_name", "m".to_owned())];
        let point = |labels| Point { labels, value: value.clone() };
        let points = vec![point(labels), point(Vec::new())];
        write_metric(&mut page, &Metric { name: "/x", kind: Kind::Histogram, points });
        assert_eq!(
            page,
            "# TYPE :x histogram\n\
             :x_bucket{model_name=\"m\",le=\"10\"} 1\n\
             :x_bucket{model_name=\"m\",le=\"18\"} 3\n\
             :x_bucket{model_name=\"m\",le=\"+Inf\"} 6\n\
             :x_sum{model_name=\"m\"} 1234.5\n\
             :x_count{model_name=\"m\"} 6\n\
             :x_bucket{le=\"10\"} 1\n\
             :x_bucket{le=\"18\"} 3\n\
             :x_bucket{le=\"+Inf\"} 6\n\
             :x_sum{} 1234.5\n\
             :x_count{} 6\n"
        );
    }
}
