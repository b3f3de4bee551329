//! The text format of Prometheus, as TensorFlow's exporter (`prometheus_exporter.cc`) writes it.

use std::fmt::Write as _;
use std::time::Duration;

use crate::metric::{Metric, Value};

/// Writes a metric to the end of a page. Histograms without values are left out.
pub fn write(page: &mut String, metric: &Metric) {
    let name = name(metric.name);
    // Writing to a string does not fail, here and below.
    if !metric.help.is_empty() {
        let _ = writeln!(page, "# HELP {name} {}", metric.help);
    }
    let _ = writeln!(page, "# TYPE {name} {}", metric.kind.name());
    for point in metric.points.iter().filter(|point| !point.value.is_empty()) {
        let labels = labels(&point.labels);
        let _ = match &point.value {
            Value::Count(number) => writeln!(page, "{name}{{{labels}}} {number}"),
            Value::Signed(number) => writeln!(page, "{name}{{{labels}}} {number}"),
            Value::Seconds(time) => writeln!(page, "{name}{{{labels}}} {}", seconds(*time)),
            Value::Histogram { .. } => write_histogram(page, &name, &labels, &point.value),
        };
    }
}

fn write_histogram(
    page: &mut String,
    name: &str,
    labels: &str,
    histogram: &Value,
) -> std::fmt::Result {
    let Value::Histogram { limits, counts, sum } = histogram else { return Ok(()) };
    let comma = if labels.is_empty() { "" } else { "," };
    let mut total = 0;
    let limits = limits.iter().map(|limit| significant(*limit));
    for (count, limit) in counts.iter().zip(limits.chain(["+Inf".to_owned()])) {
        total += count;
        writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{limit}\"}} {total}")?;
    }
    writeln!(page, "{name}_sum{{{labels}}} {}", significant(*sum))?;
    writeln!(page, "{name}_count{{{labels}}} {total}")
}

/// A path of TensorFlow's, as its exporter writes it. Our own names stay as they are.
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

/// A time to the microsecond, which a sum over months still shows.
fn seconds(time: Duration) -> String {
    let text = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
    use crate::metric::{Kind, Point};

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
    fn times_are_shown_to_the_microsecond() {
        let check = |nanos, expected: &str| {
            assert_eq!(seconds(Duration::from_nanos(nanos)), expected);
        };
        check(0, "0");
        check(1_000_000_000, "1");
        check(1_500_000_999, "1.5");
        check(12_345_678_901_234, "12345.678901");
        check(10_000_000_000, "10");
    }

    #[test]
    fn labels_are_escaped() {
        let text = labels(&[("model_name", "a\\b\"c\nd".to_owned()), ("status", "OK".to_owned())]);
        assert_eq!(text, r#"model_name="a\\b\"c\nd",status="OK""#);
    }

    #[test]
    fn metrics_without_points_are_named() {
        let mut page = String::new();
        let metric = Metric { name: "/a/b-c", kind: Kind::Counter, help: "", points: Vec::new() };
        write(&mut page, &metric);
        assert_eq!(page, "# TYPE :a:b:c counter\n");
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut page = String::new();
        let value = Value::Histogram { limits: &[10.0, 18.0], counts: vec![1, 2, 3], sum: 1234.5 };
        let labels = vec![("model_name", "m".to_owned())];
        let point = |labels| Point { labels, value: value.clone() };
        let points = vec![point(labels), point(Vec::new())];
        let empty = Value::Histogram { limits: &[10.0], counts: vec![0, 0], sum: 0.0 };
        let points = [points, vec![Point::new(Vec::new(), empty)]].concat();
        let metric = Metric { name: "tensord_x", kind: Kind::Histogram, help: "Sizes.", points };
        write(&mut page, &metric);
        assert_eq!(
            page,
            "# HELP tensord_x Sizes.\n\
             # TYPE tensord_x histogram\n\
             tensord_x_bucket{model_name=\"m\",le=\"10\"} 1\n\
             tensord_x_bucket{model_name=\"m\",le=\"18\"} 3\n\
             tensord_x_bucket{model_name=\"m\",le=\"+Inf\"} 6\n\
             tensord_x_sum{model_name=\"m\"} 1234.5\n\
             tensord_x_count{model_name=\"m\"} 6\n\
             tensord_x_bucket{le=\"10\"} 1\n\
             tensord_x_bucket{le=\"18\"} 3\n\
             tensord_x_bucket{le=\"+Inf\"} 6\n\
             tensord_x_sum{} 1234.5\n\
             tensord_x_count{} 6\n"
        );
    }
}
