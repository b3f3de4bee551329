//! What TensorFlow's workers and GPUs hold, as metrics.

use api::{Kind, Metric, Point, Value};

use super::External;

impl External {
    /// The memory and the restarts of workers, and the memory of GPUs that only they can use.
    pub(crate) fn metrics(&self) -> [Metric; 3] {
        let gauge = |labels, bytes: u64| Point {
            labels,
            value: Value::Gauge(i64::try_from(bytes).unwrap_or(i64::MAX)),
        };
        let (gpus, workers) = (self.gpus(), self.worker_snapshots());
        let (mut held, mut restarts, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for worker in &workers {
            let labels =
                || vec![("worker", worker.name.clone()), ("device", worker.device.clone())];
            for (kind, bytes) in [("resident", worker.resident_bytes), ("base", worker.base_bytes)]
            {
                let kind = ("kind", kind.to_owned());
                held.push(gauge(labels().into_iter().chain([kind]).collect(), bytes));
            }
            let value = Value::Counter(worker.n_restarts);
            restarts.push(Point { labels: labels(), value });
        }
        for one in self.all() {
            let on_it = workers.iter().filter(|worker| worker.device == one.name());
            let ours: u64 = on_it.filter_map(|worker| one.held_by(&gpus, worker.pid)).sum();
            let promised = one.account.held_bytes();
            let limit = one.account.limit_bytes();
            for (kind, bytes) in [("limit", limit), ("held", ours), ("promised", promised)] {
                let labels = vec![("device", one.name()), ("kind", kind.to_owned())];
                devices.push(gauge(labels, bytes));
            }
        }
        let metric = |name, kind, points| Metric { name, kind, points };
        [
            metric("/tensord/worker_memory_bytes", Kind::Gauge, held),
            metric("/tensord/worker_restart_count", Kind::Counter, restarts),
            metric("/tensord/external_memory_bytes", Kind::Gauge, devices),
        ]
    }
}
