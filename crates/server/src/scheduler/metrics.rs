//! The metrics of queues and lanes. TensorFlow Serving's names where it has the metric
//! (`batching_session.cc`), with a line for each model where it has one for all.

use api::{Kind, Metric, Point, Value};
use batch::Reason;
use schedule::{Histogram, Stats};

use super::Scheduler;
use crate::batching::Row;

/// Powers of two, as the counters of queues count.
#[rustfmt::skip]
const POWERS: [f64; 31] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
    16384.0, 32768.0, 65536.0, 131_072.0, 262_144.0, 524_288.0, 1_048_576.0, 2_097_152.0,
    4_194_304.0, 8_388_608.0, 16_777_216.0, 33_554_432.0, 67_108_864.0, 134_217_728.0,
    268_435_456.0, 536_870_912.0, 1_073_741_824.0,
];

/// A name, and the count it shows.
type Count = (&'static str, fn(&Stats) -> u64);

const COUNTERS: &[Count] = &[
    ("/tensorflow/serving/batching_session/wrapped_run_count", |stats| stats.n_batches),
    ("/tensord/scheduler/tasks", |stats| stats.n_asked),
    ("/tensord/scheduler/refused", |stats| stats.n_refused),
    ("/tensord/scheduler/expired", |stats| stats.n_expired),
    ("/tensord/scheduler/cancelled", |stats| stats.n_cancelled),
    ("/tensord/scheduler/rerun_batches", |stats| stats.n_rerun),
    ("/tensord/scheduler/rows", |stats| stats.n_rows),
    ("/tensord/scheduler/padding_rows", |stats| stats.n_padding),
];

/// A name, and the histogram it shows.
type Spread = (&'static str, fn(&Stats) -> Value);

const HISTOGRAMS: &[Spread] = &[
    ("/tensorflow/serving/batching_session/queuing_latency", |stats| value(&stats.queue_micros)),
    ("/tensorflow/serving/batching_session/input_batch_size", |stats| value(&stats.task_rows)),
    ("/tensorflow/serving/batching_session/processed_batch_size", |stats| {
        value(&stats.padded_rows)
    }),
    ("/tensord/scheduler/batch_rows", |stats| value(&stats.batch_rows)),
    ("/tensord/scheduler/compute_micros", |stats| value(&stats.run_micros)),
    ("/tensord/scheduler/refusal_micros", |stats| value(&stats.refusal_micros)),
];

/// All metrics of queues and lanes.
pub(crate) fn metrics(scheduler: &Scheduler) -> Vec<Metric> {
    let rows = scheduler.versions.queues();
    let mut metrics = Vec::new();
    for (name, count) in COUNTERS {
        let point = |row: &Row| point(row, Value::Counter(count(&row.queue.snapshot.stats)));
        metrics.push(metric(name, Kind::Counter, rows.iter().map(point)));
    }
    for (name, spread) in HISTOGRAMS {
        let point = |row: &Row| point(row, spread(&row.queue.snapshot.stats));
        metrics.push(metric(name, Kind::Histogram, rows.iter().map(point)));
    }
    let left = rows.iter().flat_map(|row| {
        Reason::ALL.iter().zip(row.queue.snapshot.stats.left).map(move |(reason, count)| {
            let mut point = point(row, Value::Counter(count));
            point.labels.push(("reason", reason.name().to_owned()));
            point
        })
    });
    metrics.push(metric("/tensord/scheduler/batches_left", Kind::Counter, left));
    let waiting = |row: &Row| point(row, gauge(row.queue.snapshot.n_tasks as u128));
    metrics.push(metric("/tensord/scheduler/waiting", Kind::Gauge, rows.iter().map(waiting)));
    let age = |row: &Row| point(row, gauge(row.queue.snapshot.age.as_micros()));
    metrics.push(metric("/tensord/scheduler/oldest_micros", Kind::Gauge, rows.iter().map(age)));
    metrics.push(busy(scheduler));
    metrics
}

/// How long each lane has run, in microseconds.
fn busy(scheduler: &Scheduler) -> Metric {
    let points = scheduler.lanes().into_iter().flat_map(|(device, lanes)| {
        lanes.snapshot().into_iter().enumerate().map(move |(number, lane)| Point {
            labels: vec![("device", device.clone()), ("lane", number.to_string())],
            value: Value::Counter(u64::try_from(lane.busy.as_micros()).unwrap_or(u64::MAX)),
        })
    });
    metric("/tensord/scheduler/lane_busy_micros", Kind::Counter, points)
}

fn metric(name: &'static str, kind: Kind, points: impl Iterator<Item = Point>) -> Metric {
    Metric { name, kind, points: points.collect() }
}

fn point(row: &Row, value: Value) -> Point {
    let is_batched = if row.queue.why_single.is_none() { "true" } else { "false" };
    let labels = vec![
        ("model_name", row.model.clone()),
        ("version", row.version.to_string()),
        ("signature", row.queue.signature.clone()),
        ("device", row.queue.device.clone()),
        ("batched", is_batched.to_owned()),
    ];
    Point { labels, value }
}

fn gauge(number: u128) -> Value {
    Value::Gauge(i64::try_from(number).unwrap_or(i64::MAX))
}

fn value<const N: usize>(histogram: &Histogram<N>) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "the page shows six digits")]
    let sum = histogram.sum as f64;
    Value::Histogram { limits: &POWERS[..N - 1], counts: histogram.counts.to_vec(), sum }
}
