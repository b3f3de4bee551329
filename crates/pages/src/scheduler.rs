//! `GET /v1/scheduler`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The queues and the lanes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SchedulerPage {
    /// The queues: one for each model, version, signature and device.
    pub queues: Vec<QueueEntry>,
    /// The lanes of all devices.
    pub lanes: Vec<LaneEntry>,
}

/// A lane: a thread that runs batches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LaneEntry {
    /// The name of the lane's logical device.
    pub device: String,
    /// The lane's number on its device, from 0.
    pub lane: usize,
    /// True while a batch runs.
    pub is_busy: bool,
    /// The seconds in which batches ran.
    pub busy_seconds: f64,
    /// The share of the lane's life in which batches ran, from 0 to 1.
    pub utilisation: f64,
}

/// A queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueEntry {
    /// The model's name.
    pub model: String,
    /// The version.
    pub version: i64,
    /// The signature whose requests wait here.
    pub signature: String,
    /// The name of the logical device whose lanes run them.
    pub device: String,
    /// True if requests are run together.
    pub is_batched: bool,
    /// The reason why requests run one by one; null if they are batched.
    pub why_not_batched: Option<String>,
    /// The most rows of a batch.
    pub max_batch_size: usize,
    /// The time that a request may wait for others while a lane is free.
    pub batch_timeout_micros: u64,
    /// The number of batches that may wait.
    pub max_enqueued_batches: usize,
    /// The sizes that batches are filled up to; empty means that they stay as they are.
    pub allowed_batch_sizes: Vec<usize>,
    /// The share of the model against others on a busy device.
    pub weight: u32,
    /// The priority of requests that name none.
    pub default_priority: usize,
    /// The part that requests of lower priorities have in batches of higher ones.
    pub mixed_priority_policy: MixedPolicy,
    /// The limits of single priorities, the most urgent first.
    pub priorities: Vec<PriorityLimits>,
    /// The most rows of a batch that fit in memory; null if that is not known.
    pub rows_that_fit: Option<usize>,
    /// The requests that wait.
    pub waiting: WaitingTasks,
    /// The requests so far.
    pub tasks: TaskCounts,
    /// The batches so far.
    pub batches: BatchCounts,
    /// The rows so far.
    pub rows: RowCounts,
    /// The time of requests in the queue.
    pub queue_micros: Distribution,
    /// The time of runs.
    pub compute_micros: Distribution,
    /// The time until requests were refused.
    pub refusal_micros: Distribution,
    /// The expected time of runs.
    pub predicted_micros: PredictedMicros,
}

/// The part that requests of lower priorities have in batches of higher ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum MixedPolicy {
    /// They take part like any other.
    #[default]
    #[serde(rename = "merge")]
    Merge,
    /// They fill the room up to the largest batch.
    #[serde(rename = "pad_to_max_batch_size")]
    PadToMax,
    /// They fill only what would be padding, up to the next allowed size.
    #[serde(rename = "pad_to_next_allowed_batch_size")]
    PadToNextAllowed,
    /// They have batches of their own.
    #[serde(rename = "isolate")]
    Isolate,
}

/// The limits of a priority.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PriorityLimits {
    /// The number of batches that may wait; null without a limit of its own.
    pub max_enqueued_batches: Option<usize>,
    /// The time that a request may wait for others; null without a limit of its own.
    pub batch_timeout_micros: Option<u64>,
    /// The time after which a request that waits is refused; null without a limit of its own.
    pub queue_timeout_micros: Option<u64>,
}

/// The requests that wait in a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitingTasks {
    /// The number of requests.
    pub tasks: usize,
    /// The number of their rows.
    pub rows: usize,
    /// The time that the oldest has waited.
    pub oldest_micros: u64,
}

/// The requests of a queue so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskCounts {
    /// The requests that came.
    pub asked: u64,
    /// The requests refused when they came.
    pub refused: u64,
    /// The requests whose deadline came while they waited.
    pub expired: u64,
    /// The requests whose clients went while they waited.
    pub cancelled: u64,
}

/// The batches of a queue so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchCounts {
    /// The batches that have run.
    pub run: u64,
    /// The batches by the reason for which they left the queue.
    pub left: LeftCounts,
    /// The batches that failed and were run again, request by request.
    pub rerun_one_by_one: u64,
}

/// The batches that left a queue, by reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeftCounts {
    /// No more would fit.
    pub full: u64,
    /// The oldest request had waited for the timeout.
    pub timeout: u64,
    /// A lane was free.
    pub idle: u64,
    /// A request would have missed its deadline.
    pub deadline: u64,
}

/// The rows of a queue so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RowCounts {
    /// The rows that ran, padding not counted.
    pub run: u64,
    /// The rows of padding that ran.
    pub padding: u64,
    /// The share of padding in all rows that ran, from 0 to 1.
    pub padding_share: f64,
    /// The rows of each request.
    pub per_task: Distribution,
    /// The rows of each batch, padding not counted.
    pub per_batch: Distribution,
    /// The rows of each run, padding counted.
    pub per_run: Distribution,
}

/// Counts of values by size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// The mean; 0 without values.
    pub mean: f64,
    /// The median, rounded up to a power of two; 0 without values.
    pub p50: u64,
    /// The value that one in a hundred exceeds, rounded up to a power of two; 0 without values.
    pub p99: u64,
    /// The number of values up to each power of two and above the one before; empty ones are left
    /// out.
    pub up_to: BTreeMap<u64, u64>,
}

/// The expected time of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PredictedMicros {
    /// The time of one row; null before any has run.
    pub one_row: Option<u64>,
    /// The time of a full batch; null before any has run.
    pub full_batch: Option<u64>,
}
