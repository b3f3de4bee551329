//! The counters of queues and lanes. TensorFlow Serving has the metrics of `batching_session.cc`
//! once for all models; here each queue has a line.

use std::time::Duration;

use batch::Reason;
use metrics::{Point, Value};
use schedule::Stats;

use super::Snapshot;
use crate::batching::Row;

/// A value of each queue's counters.
pub(super) fn each(snapshot: &Snapshot<'_>, value: fn(&Stats) -> Value) -> Vec<Point> {
    let point = |row: &Row| Point::new(labels(row), value(&row.queue.snapshot.stats));
    snapshot.queues.iter().map(point).collect()
}

/// A count of each queue's counters.
pub(super) fn count(snapshot: &Snapshot<'_>, count: fn(&Stats) -> u64) -> Vec<Point> {
    let point = |row: &Row| Point::new(labels(row), Value::Count(count(&row.queue.snapshot.stats)));
    snapshot.queues.iter().map(point).collect()
}

/// The batches that left each queue, by reason, for those reasons for which any did.
pub(super) fn batches(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let of_queue = |row: &Row| {
        let left = Reason::ALL.iter().zip(row.queue.snapshot.stats.left);
        let point = |(reason, count): (&Reason, u64)| {
            let labels = [labels(row), vec![("reason", reason.name().to_owned())]].concat();
            Point::new(labels, Value::Count(count))
        };
        left.filter(|(_, count)| *count > 0).map(point).collect::<Vec<_>>()
    };
    snapshot.queues.iter().flat_map(of_queue).collect()
}

/// The tasks that wait in each queue.
pub(super) fn waiting(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let n_tasks = |row: &Row| Value::Count(row.queue.snapshot.n_tasks as u64);
    snapshot.queues.iter().map(|row| Point::new(labels(row), n_tasks(row))).collect()
}

/// The time that the oldest task of each queue has waited.
pub(super) fn oldest(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let age = |row: &Row| Value::Seconds(row.queue.snapshot.age);
    snapshot.queues.iter().map(|row| Point::new(labels(row), age(row))).collect()
}

/// The time that each lane has run batches.
pub(super) fn lanes(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let of_device = |(device, lanes): (String, std::sync::Arc<schedule::Lanes>)| {
        let point = move |(number, busy): (usize, Duration)| {
            let labels = vec![("device", device.clone()), ("lane", number.to_string())];
            Point::new(labels, Value::Seconds(busy))
        };
        lanes.snapshot().into_iter().map(|lane| lane.busy).enumerate().map(point)
    };
    snapshot.counters.scheduler.lanes().into_iter().flat_map(of_device).collect()
}

fn labels(row: &Row) -> Vec<(&'static str, String)> {
    let is_batched = if row.queue.why_single.is_none() { "true" } else { "false" };
    vec![
        ("model_name", row.model.clone()),
        ("version", row.version.to_string()),
        ("signature", row.queue.signature.clone()),
        ("device", row.queue.device.clone()),
        ("batched", is_batched.to_owned()),
    ]
}
