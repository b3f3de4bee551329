//! Fills `GET /v1/scheduler`.

use std::time::Duration;

use batch::{Level, MixedPriority, Reason};
use metrics::Counts;
use pages::{
    BatchCounts, Distribution, LaneEntry, LeftCounts, MixedPolicy, PredictedMicros, PriorityLimits,
    QueueEntry, RowCounts, SchedulerPage, TaskCounts, WaitingTasks,
};
use schedule::{QueueSnapshot, Stats};

use super::Scheduler;
use crate::batching::Row;

/// The page.
pub(crate) fn page(scheduler: &Scheduler) -> SchedulerPage {
    let lanes = scheduler.lanes().into_iter().flat_map(|(device, lanes)| {
        let age = lanes.age().as_secs_f64();
        lanes.snapshot().into_iter().enumerate().map(move |(number, lane)| LaneEntry {
            device: device.clone(),
            lane: number,
            is_busy: lane.is_busy,
            busy_seconds: lane.busy.as_secs_f64(),
            utilisation: share(lane.busy.as_secs_f64(), age),
        })
    });
    SchedulerPage {
        queues: scheduler.versions.queues().iter().map(queue).collect(),
        lanes: lanes.collect(),
    }
}

fn queue(row: &Row) -> QueueEntry {
    let QueueSnapshot { stats, options, .. } = &row.queue.snapshot;
    QueueEntry {
        model: row.model.clone(),
        version: row.version,
        signature: row.queue.signature.clone(),
        device: row.queue.device.clone(),
        is_batched: row.queue.why_single.is_none(),
        why_not_batched: row.queue.why_single.clone(),
        max_batch_size: options.batch_rows_max,
        batch_timeout_micros: micros(options.timeout),
        max_enqueued_batches: options.enqueued_batches_max,
        allowed_batch_sizes: options.allowed_sizes.clone(),
        weight: row.queue.snapshot.weight,
        default_priority: row.queue.default_level,
        mixed_priority_policy: mixed(options.mixed_priority),
        priorities: options.levels.iter().map(level).collect(),
        rows_that_fit: row.queue.snapshot.rows_fit,
        waiting: WaitingTasks {
            tasks: row.queue.snapshot.n_tasks,
            rows: row.queue.snapshot.n_rows,
            oldest_micros: micros(row.queue.snapshot.age),
        },
        tasks: TaskCounts {
            asked: stats.n_asked,
            refused: stats.n_refused,
            expired: stats.n_expired,
            cancelled: stats.n_cancelled,
        },
        batches: batches(stats),
        rows: rows(stats),
        queue_micros: distribution(&stats.queue_micros),
        compute_micros: distribution(&stats.run_micros),
        refusal_micros: distribution(&stats.refusal_micros),
        predicted_micros: PredictedMicros {
            one_row: row.queue.snapshot.run_one.map(micros),
            full_batch: row.queue.snapshot.run_full.map(micros),
        },
    }
}

fn batches(stats: &Stats) -> BatchCounts {
    let mut left = LeftCounts::default();
    for (reason, count) in Reason::ALL.iter().zip(stats.left) {
        *match reason {
            Reason::Full => &mut left.full,
            Reason::Timeout => &mut left.timeout,
            Reason::Idle => &mut left.idle,
            Reason::Deadline => &mut left.deadline,
        } = count;
    }
    BatchCounts { run: stats.n_batches, left, rerun_one_by_one: stats.n_rerun }
}

fn rows(stats: &Stats) -> RowCounts {
    let all = (stats.n_rows + stats.n_padding) as f64;
    RowCounts {
        run: stats.n_rows,
        padding: stats.n_padding,
        padding_share: share(stats.n_padding as f64, all),
        per_task: distribution(&stats.task_rows),
        per_batch: distribution(&stats.batch_rows),
        per_run: distribution(&stats.padded_rows),
    }
}

/// The limits of a priority.
fn level(level: &Level) -> PriorityLimits {
    PriorityLimits {
        max_enqueued_batches: level.enqueued_batches_max,
        batch_timeout_micros: level.timeout.map(micros),
        queue_timeout_micros: level.wait_max.map(micros),
    }
}

fn mixed(policy: MixedPriority) -> MixedPolicy {
    match policy {
        MixedPriority::Merge => MixedPolicy::Merge,
        MixedPriority::PadToMax => MixedPolicy::PadToMax,
        MixedPriority::PadToNextAllowed => MixedPolicy::PadToNextAllowed,
        MixedPriority::Isolate => MixedPolicy::Isolate,
    }
}

fn distribution<const N: usize>(histogram: &Counts<N>) -> Distribution {
    Distribution {
        count: histogram.n(),
        mean: histogram.mean(),
        p50: histogram.percentile(50),
        p99: histogram.percentile(99),
        up_to: histogram.filled().collect(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
