//! `GET /v1/scheduler`, and the same as a table.

use std::time::Duration;

use batch::{Level, MixedPriority, Reason};
use schedule::{Histogram, QueueSnapshot};
use serde_json::{Value, json};

use super::Scheduler;
use crate::batching::Row;

/// The page, as JSON.
pub(crate) fn page(scheduler: &Scheduler) -> String {
    let queues: Vec<Value> = scheduler.versions.queues().iter().map(queue).collect();
    let lanes = scheduler.lanes().into_iter().flat_map(|(device, lanes)| {
        let age = lanes.age().as_secs_f64();
        lanes.snapshot().into_iter().enumerate().map(move |(number, lane)| {
            json!({
                "device": device,
                "lane": number,
                "is_busy": lane.is_busy,
                "busy_seconds": lane.busy.as_secs_f64(),
                "utilisation": share(lane.busy.as_secs_f64(), age),
            })
        })
    });
    let page = json!({ "queues": queues, "lanes": lanes.collect::<Vec<_>>() });
    format!("{page:#}\n")
}

fn queue(row: &Row) -> Value {
    let QueueSnapshot { stats, options, .. } = &row.queue.snapshot;
    let left = Reason::ALL.iter().zip(stats.left);
    let left: serde_json::Map<String, Value> =
        left.map(|(reason, count)| (reason.name().to_owned(), count.into())).collect();
    json!({
        "model": row.model,
        "version": row.version,
        "signature": row.queue.signature,
        "device": row.queue.device,
        "is_batched": row.queue.why_single.is_none(),
        "why_not_batched": row.queue.why_single,
        "max_batch_size": options.batch_rows_max,
        "batch_timeout_micros": micros(options.timeout),
        "max_enqueued_batches": options.enqueued_batches_max,
        "allowed_batch_sizes": options.allowed_sizes,
        "weight": row.queue.snapshot.weight,
        "default_priority": row.queue.default_level,
        "mixed_priority_policy": mixed(options.mixed_priority),
        "priorities": options.levels.iter().map(level).collect::<Vec<_>>(),
        "rows_that_fit": row.queue.snapshot.rows_fit,
        "waiting": { "tasks": row.queue.snapshot.n_tasks, "rows": row.queue.snapshot.n_rows,
                     "oldest_micros": micros(row.queue.snapshot.age) },
        "tasks": { "asked": stats.n_asked, "refused": stats.n_refused,
                   "expired": stats.n_expired, "cancelled": stats.n_cancelled },
        "batches": { "run": stats.n_batches, "left": left, "rerun_one_by_one": stats.n_rerun },
        "rows": { "run": stats.n_rows, "padding": stats.n_padding,
                  "padding_share": share(stats.n_padding as f64,
                                         (stats.n_rows + stats.n_padding) as f64),
                  "per_task": histogram(&stats.task_rows),
                  "per_batch": histogram(&stats.batch_rows),
                  "per_run": histogram(&stats.padded_rows) },
        "queue_micros": histogram(&stats.queue_micros),
        "compute_micros": histogram(&stats.run_micros),
        "refusal_micros": histogram(&stats.refusal_micros),
        "predicted_micros": { "one_row": row.queue.snapshot.run_one.map(micros),
                              "full_batch": row.queue.snapshot.run_full.map(micros) },
    })
}

/// The limits of a priority.
fn level(level: &Level) -> Value {
    json!({ "max_enqueued_batches": level.enqueued_batches_max,
            "batch_timeout_micros": level.timeout.map(micros),
            "queue_timeout_micros": level.wait_max.map(micros) })
}

fn mixed(policy: MixedPriority) -> &'static str {
    match policy {
        MixedPriority::Merge => "merge",
        MixedPriority::PadToMax => "pad_to_max_batch_size",
        MixedPriority::PadToNextAllowed => "pad_to_next_allowed_batch_size",
        MixedPriority::Isolate => "isolate",
    }
}

fn histogram<const N: usize>(histogram: &Histogram<N>) -> Value {
    let counts = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let up_to: serde_json::Map<String, Value> =
        counts.map(|(power, count)| ((1u64 << power).to_string(), (*count).into())).collect();
    json!({ "count": histogram.n, "mean": histogram.mean(), "p50": histogram.percentile(50),
            "p99": histogram.percentile(99), "up_to": up_to })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
