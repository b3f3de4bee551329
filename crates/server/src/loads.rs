//! Loads versions on threads that give way to those that serve, and counts the loads: how many, how
//! they ended, how long they took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lifecycle::{Attempt, LoadError, Loader};
use metrics::{Point, Value};
use parking_lot::{Condvar, Mutex};
use status::Code;

/// The degree to which a thread that loads gives way to others: of two threads on one core, the one
/// that serves gets nine tenths.
const NICENESS: i32 = 10;

/// The number of paths that are counted one by one; beyond that the first are forgotten.
const PATHS_MAX: usize = 1000;

/// The counts, by the path of the version.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    by_path: Mutex<BTreeMap<String, Load>>,
}

#[derive(Debug, Clone, Default)]
struct Load {
    n_succeeded: u64,
    n_failed: u64,
    took: Duration,
}

impl Loads {
    fn count(&self, path: &str, has_loaded: bool, took: Duration) {
        let mut by_path = self.by_path.lock();
        if by_path.len() >= PATHS_MAX && !by_path.contains_key(path) {
            by_path.pop_first();
        }
        let load = by_path.entry(path.to_owned()).or_default();
        let count = if has_loaded { &mut load.n_succeeded } else { &mut load.n_failed };
        *count += 1;
        load.took += took;
    }

    /// The number of loads by path and outcome.
    pub(crate) fn attempts(&self) -> Vec<Point> {
        let by_path = self.by_path.lock();
        let of_path = |(path, load): (&String, &Load)| {
            let outcomes = [("success", load.n_succeeded), ("fail", load.n_failed)];
            let outcomes = outcomes.into_iter().filter(|(_, n)| *n > 0);
            let point = |(status, n): (&str, u64)| {
                let labels = vec![("model_path", path.clone()), ("status", status.to_owned())];
                Point::new(labels, Value::Count(n))
            };
            outcomes.map(point).collect::<Vec<_>>()
        };
        by_path.iter().flat_map(of_path).collect()
    }

    /// The microseconds that loads took, by path.
    pub(crate) fn latency(&self) -> Vec<Point> {
        let by_path = self.by_path.lock();
        let point = |(path, load): (&String, &Load)| {
            let micros = u64::try_from(load.took.as_micros()).unwrap_or(u64::MAX);
            Point::new(vec![("model_path", path.clone())], Value::Count(micros))
        };
        by_path.iter().map(point).collect()
    }
}

/// A loader whose loads are counted, and run beside those that serve.
pub(crate) struct Counted<L> {
    pub(crate) loader: Arc<L>,
    pub(crate) loads: Arc<Loads>,
}

impl<L: Loader> Loader for Counted<L> {
    type Servable = L::Servable;

    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        attempt: &Attempt,
    ) -> Result<Self::Servable, LoadError> {
        let start = Instant::now();
        let refused = |error| {
            LoadError::new(Code::ResourceExhausted, format!("no thread for a load: {error}"))
        };
        let loaded = aside(|| self.loader.load(model, version, path, attempt));
        let loaded = loaded.map_err(refused).flatten();
        self.loads.count(path, loaded.is_ok(), start.elapsed());
        loaded
    }
}

/// Does `work` on a thread of its own that gives way to others: one that is nice stays so, since
/// only the privileged may take it back.
pub(crate) fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    let runtime = tokio::runtime::Handle::try_current();
    let nicely = || {
        // A warm-up waits for its answers as whoever asked for the load would.
        let _entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
        if let Err(error) = rustix::process::nice(NICENESS) {
            tracing::debug!("loads are as urgent as requests: {error}");
        }
        // Whoever reads an `ArcSwap` has a record of it that outlives the thread, and locks have a
        // table that grows with the threads that wait: not on pages that go with a model.
        drop(ArcSwap::from_pointee(()).load());
        Condvar::new().wait_for(&mut Mutex::new(()).lock(), Duration::ZERO);
        heap::use_for_loads();
        let done = work();
        heap::settle_stack();
        done
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("load".to_owned());
        let thread = thread.spawn_scoped(scope, nicely)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_gives_way_to_those_that_serve() {
        let niceness = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields = stat.rsplit_once(") ").unwrap().1;
            fields.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = niceness();
        assert_eq!(aside(niceness).unwrap(), (before + NICENESS).min(19));
        assert_eq!(niceness(), before);
    }

    #[test]
    fn loads_are_counted_by_path_and_outcome() {
        let loads = Loads::default();
        loads.count("/m/1", false, Duration::from_micros(5));
        loads.count("/m/1", true, Duration::from_micros(7));
        loads.count("/n/2", true, Duration::from_micros(3));
        let shown = |points: Vec<Point>| -> Vec<String> {
            let point = |point: &Point| {
                let values: Vec<&str> = point.labels.iter().map(|label| &*label.1).collect();
                format!("{} {:?}", values.join(" "), point.value)
            };
            points.iter().map(point).collect()
        };
        assert_eq!(
            shown(loads.attempts()),
            ["/m/1 success Count(1)", "/m/1 fail Count(1)", "/n/2 success Count(1)"]
        );
        assert_eq!(shown(loads.latency()), ["/m/1 Count(12)", "/n/2 Count(3)"]);
    }

    #[test]
    fn paths_do_not_fill_the_memory() {
        let loads = Loads::default();
        for number in 0..2 * PATHS_MAX {
            loads.count(&number.to_string(), true, Duration::ZERO);
        }
        assert_eq!(loads.by_path.lock().len(), PATHS_MAX);
    }
}
