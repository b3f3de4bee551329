//! The metrics page: every counter of the server, in Prometheus' text format.
//!
//! TensorFlow Serving's metrics have its names, labels and units, and no help text: its exporter
//! writes `/tensorflow/serving/request_count` as `:tensorflow:serving:request_count`. Our own are
//! called `tensord_…`, with base units, and stand in `docs/metrics.md` as they stand here.

mod memory;
mod queues;
mod workers;

use std::sync::Arc;

use api::{Context, Stats};
use lifecycle::State;
use metrics::{Kind, Metric, Point, Value};
use tensorflow::WorkerSnapshot;

use crate::batching::Row;
use crate::external::External;
use crate::loads::Loads;
use crate::request_log::RequestLog;
use crate::scheduler::Scheduler;
use crate::warmups::Warmups;

/// The owners of all counters.
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

/// The counters, with a copy of those that several metrics show.
struct Snapshot<'a> {
    counters: &'a Counters,
    stats: &'a Stats,
    queues: Vec<Row>,
    spaces: Vec<device::Snapshot>,
    workers: Vec<WorkerSnapshot>,
}

/// A metric of the page.
struct Line {
    name: &'static str,
    kind: Kind,
    /// The text of its `# HELP` line; TensorFlow Serving's metrics have none.
    help: &'static str,
    points: fn(&Snapshot<'_>) -> Vec<Point>,
}

/// A metric of TensorFlow Serving's.
const fn serving(name: &'static str, kind: Kind, points: fn(&Snapshot<'_>) -> Vec<Point>) -> Line {
    Line { name, kind, help: "", points }
}

/// A metric of our own that counts.
const fn counter(
    name: &'static str,
    help: &'static str,
    points: fn(&Snapshot<'_>) -> Vec<Point>,
) -> Line {
    Line { name, kind: Kind::Counter, help, points }
}

/// A metric of our own that goes up and down.
const fn gauge(
    name: &'static str,
    help: &'static str,
    points: fn(&Snapshot<'_>) -> Vec<Point>,
) -> Line {
    Line { name, kind: Kind::Gauge, help, points }
}

/// A metric of our own that counts values by size.
const fn histogram(
    name: &'static str,
    help: &'static str,
    points: fn(&Snapshot<'_>) -> Vec<Point>,
) -> Line {
    Line { name, kind: Kind::Histogram, help, points }
}

/// Every metric, in the order of the page.
const LINES: &[Line] = &[
    serving("/tensorflow/serving/request_count", Kind::Counter, |s| s.stats.request_count()),
    serving("/tensorflow/serving/request_latency", Kind::Histogram, |s| s.stats.request_latency()),
    serving("/tensorflow/serving/runtime_latency", Kind::Histogram, |s| s.stats.runtime_latency()),
    serving("/tensorflow/serving/request_example_counts", Kind::Histogram, |s| {
        s.stats.example_counts()
    }),
    serving("/tensorflow/serving/request_example_count_total", Kind::Counter, |s| {
        s.stats.example_count_total()
    }),
    serving("/tensorflow/cc/saved_model/load_attempt_count", Kind::Counter, |s| {
        s.counters.loads.attempts()
    }),
    serving("/tensorflow/cc/saved_model/load_latency", Kind::Counter, |s| {
        s.counters.loads.latency()
    }),
    serving("/tensorflow/serving/model_warmup_latency", Kind::Histogram, |s| {
        s.counters.warmups.latency()
    }),
    serving("/tensorflow/serving/model_warmup_records_read", Kind::Counter, |s| {
        s.counters.warmups.records()
    }),
    serving("/tensorflow/serving/request_log_count", Kind::Counter, |s| s.counters.log.points()),
    serving("/tensorflow/serving/batching_session/wrapped_run_count", Kind::Counter, |s| {
        queues::count(s, |stats| stats.n_batches)
    }),
    serving("/tensorflow/serving/batching_session/queuing_latency", Kind::Histogram, |s| {
        queues::each(s, |stats| stats.queue_micros.value())
    }),
    serving("/tensorflow/serving/batching_session/input_batch_size", Kind::Histogram, |s| {
        queues::each(s, |stats| stats.task_rows.value())
    }),
    serving("/tensorflow/serving/batching_session/processed_batch_size", Kind::Histogram, |s| {
        queues::each(s, |stats| stats.padded_rows.value())
    }),
    histogram("tensord_run_seconds", "Time of runs that ended well.", |s| s.stats.run_seconds()),
    counter("tensord_run_failures_total", "Runs that failed.", |s| s.stats.run_failures()),
    gauge("tensord_in_flight_requests", "Requests that have begun and not ended.", |s| {
        s.stats.in_flight()
    }),
    gauge(
        "tensord_in_flight_bytes",
        "Memory of requests and answers that are in flight.",
        in_flight_bytes,
    ),
    gauge("tensord_model_versions", "Versions of each model in each state.", versions),
    counter("tensord_queue_tasks_total", "Tasks that came to a queue.", |s| {
        queues::count(s, |stats| stats.n_asked)
    }),
    counter(
        "tensord_queue_refused_tasks_total",
        "Tasks that a queue refused when they came.",
        |s| queues::count(s, |stats| stats.n_refused),
    ),
    counter(
        "tensord_queue_expired_tasks_total",
        "Tasks whose deadline passed while they waited.",
        |s| queues::count(s, |stats| stats.n_expired),
    ),
    counter(
        "tensord_queue_cancelled_tasks_total",
        "Tasks whose clients went away while they waited.",
        |s| queues::count(s, |stats| stats.n_cancelled),
    ),
    counter(
        "tensord_queue_batches_total",
        "Batches that left a queue, by reason.",
        queues::batches,
    ),
    counter(
        "tensord_queue_rerun_batches_total",
        "Batches that failed and were run again task by task.",
        |s| queues::count(s, |stats| stats.n_rerun),
    ),
    counter("tensord_queue_rows_total", "Rows that ran, without padding.", |s| {
        queues::count(s, |stats| stats.n_rows)
    }),
    counter("tensord_queue_padding_rows_total", "Rows that only padded a batch.", |s| {
        queues::count(s, |stats| stats.n_padding)
    }),
    gauge("tensord_queue_waiting_tasks", "Tasks that wait in a queue.", queues::waiting),
    gauge(
        "tensord_queue_oldest_task_seconds",
        "Time that the oldest task of a queue has waited.",
        queues::oldest,
    ),
    histogram(
        "tensord_queue_refusal_seconds",
        "Time from a task's arrival until its refusal.",
        |s| queues::each(s, |stats| stats.refusal_micros.seconds()),
    ),
    histogram("tensord_batch_rows", "Rows of batches, without padding.", |s| {
        queues::each(s, |stats| stats.batch_rows.value())
    }),
    histogram("tensord_batch_run_seconds", "Time of the runs of batches.", |s| {
        queues::each(s, |stats| stats.run_micros.seconds())
    }),
    counter("tensord_lane_busy_seconds_total", "Time that a lane has run batches.", queues::lanes),
    gauge(
        "tensord_device_memory_bytes",
        "Memory of a device: its limit, and what is reserved, in use and was at most.",
        memory::devices,
    ),
    gauge(
        "tensord_model_memory_bytes",
        "Memory of a device by holder and category.",
        memory::holders,
    ),
    counter("tensord_device_memory_growths_total", "Times that a device took more memory.", |s| {
        memory::count(s, |space| space.n_growths)
    }),
    counter("tensord_device_memory_releases_total", "Times that a device gave memory back.", |s| {
        memory::count(s, |space| space.n_releases)
    }),
    counter(
        "tensord_device_memory_changed_bytes_total",
        "Memory that a device took or gave back, by cause.",
        |s| memory::changes(s, |total| Value::Count(total.bytes)),
    ),
    histogram(
        "tensord_device_memory_change_seconds",
        "Time that a device took to take memory or give it back.",
        |s| memory::changes(s, |total| total.micros.seconds()),
    ),
    gauge(
        "tensord_worker_memory_bytes",
        "Memory of a TensorFlow worker: resident, and without models.",
        workers::memory,
    ),
    counter(
        "tensord_worker_restarts_total",
        "Times that a TensorFlow worker was started again.",
        workers::restarts,
    ),
    gauge(
        "tensord_external_memory_bytes",
        "Memory of a GPU that only TensorFlow can use: limit, held and promised.",
        workers::gpus,
    ),
];

impl Counters {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let devices = self.scheduler.devices.all();
        let snapshot = Snapshot {
            counters: self,
            stats: &self.requests.stats,
            queues: self.scheduler.versions.queues(),
            spaces: devices.iter().map(|logical| logical.space.snapshot()).collect(),
            workers: self.external.worker_snapshots(),
        };
        let mut page = String::new();
        for Line { name, kind, help, points } in LINES {
            let metric = Metric { name, kind: *kind, help, points: points(&snapshot) };
            metrics::write(&mut page, &metric);
        }
        page
    }
}

fn in_flight_bytes(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let bytes = snapshot.counters.requests.budget.used() as u64;
    vec![Point::new(Vec::new(), Value::Count(bytes))]
}

fn versions(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let mut points = Vec::new();
    for model in snapshot.counters.requests.models.snapshot() {
        let states = [State::Start, State::Loading, State::Available, State::Unloading, State::End];
        for state in states {
            let n = model.versions.iter().filter(|version| version.state == state).count();
            let labels =
                vec![("model_name", model.name.clone()), ("state", state.name().to_owned())];
            points.push(Point::new(labels, Value::Count(n as u64)));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The base units, and what else is counted.
    const UNITS: &[&str] = &[
        "seconds", "bytes", "requests", "versions", "tasks", "batches", "rows", "failures",
        "growths", "releases", "restarts",
    ];

    fn ours() -> impl Iterator<Item = &'static Line> {
        LINES.iter().filter(|line| line.name.starts_with("tensord_"))
    }

    #[test]
    fn our_metrics_have_a_help_text_and_end_with_their_unit() {
        for Line { name, kind, help, .. } in ours() {
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
            let total = name.strip_suffix("_total");
            assert_eq!(total.is_some(), *kind == Kind::Counter, "{name}");
            let unit = total.unwrap_or(name).rsplit('_').next().unwrap();
            assert!(UNITS.contains(&unit), "{name} has the unit {unit}");
        }
    }

    #[test]
    fn every_metric_is_listed_once_and_is_ours_or_tensorflow_servings() {
        let mut names = std::collections::BTreeSet::new();
        for line in LINES {
            assert!(names.insert(line.name), "{} is there twice", line.name);
            let is_serving = line.name.starts_with("/tensorflow/");
            assert!(is_serving || line.name.starts_with("tensord_"), "{}", line.name);
            assert_eq!(is_serving, line.help.is_empty(), "{}", line.name);
        }
    }

    #[test]
    fn the_docs_list_our_metrics_as_the_page_does() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let text = std::fs::read_to_string(file).unwrap();
        let cells = |row: &str| -> Vec<String> {
            row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
        };
        let rows = text.lines().filter(|line| line.starts_with("| `tensord_"));
        let listed: Vec<[String; 3]> = rows
            .map(|row| {
                let cells = cells(row);
                [1, 2, 4].map(|at: usize| cells.get(at).cloned().unwrap_or_default())
            })
            .collect();
        let expected: Vec<[String; 3]> = ours()
            .map(|line| [line.name, line.kind.name(), line.help].map(str::to_owned))
            .collect();
        assert_eq!(listed, expected);
    }
}
