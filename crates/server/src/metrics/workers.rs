//! The memory of TensorFlow's workers, and of the GPUs that only they can use.

use metrics::{Point, Value};
use tensorflow::WorkerSnapshot;

use super::Snapshot;

/// The bytes of each worker, by kind.
pub(super) fn memory(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let of_worker = |worker: &WorkerSnapshot| {
        let kinds = [("resident", worker.resident_bytes), ("base", worker.base_bytes)];
        kinds.map(|(kind, bytes)| {
            let labels = [labels(worker), vec![("kind", kind.to_owned())]].concat();
            Point::new(labels, Value::Count(bytes))
        })
    };
    snapshot.workers.iter().flat_map(of_worker).collect()
}

/// The number of times that each worker was started again.
pub(super) fn restarts(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let point =
        |worker: &WorkerSnapshot| Point::new(labels(worker), Value::Count(worker.n_restarts));
    snapshot.workers.iter().map(point).collect()
}

/// The bytes of each GPU that only workers can use, by kind.
pub(super) fn gpus(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let external = &snapshot.counters.external;
    let gpus = external.gpus();
    let mut points = Vec::new();
    for one in external.all() {
        let on_it = snapshot.workers.iter().filter(|worker| worker.device == one.name());
        let ours: u64 = on_it.filter_map(|worker| one.held_by(&gpus, worker.pid)).sum();
        let promised = one.account.held_bytes();
        let limit = one.account.limit_bytes();
        for (kind, bytes) in [("limit", limit), ("held", ours), ("promised", promised)] {
            let labels = vec![("device", one.name()), ("kind", kind.to_owned())];
            points.push(Point::new(labels, Value::Count(bytes)));
        }
    }
    points
}

fn labels(worker: &WorkerSnapshot) -> Vec<(&'static str, String)> {
    vec![("worker", worker.name.clone()), ("device", worker.device.clone())]
}
