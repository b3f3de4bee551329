//! `Pool`: the threads, and the call that shares tasks among them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::gate::{Gate, Job};
use crate::stop::Stop;
use crate::{watch, worker};

/// A fixed number of threads that share the tasks of one kernel call.
#[derive(Debug)]
pub struct Pool {
    gate: Arc<Gate>,
    workers: Vec<JoinHandle<()>>,
    /// The number of lanes that are computing now.
    lanes: AtomicUsize,
}

/// While it lives, its lane counts as one of the threads that compute.
#[derive(Debug)]
pub struct Lane<'a>(&'a Pool);

impl Pool {
    /// A pool of `n_threads` threads, the caller of `run` among them; fewer, if the system refuses
    /// to start as many.
    ///
    /// # Panics
    /// If `n_threads` is 0.
    pub fn new(n_threads: usize) -> Self {
        assert!(n_threads > 0);
        let gate = Arc::new(Gate::default());
        let workers = (1..n_threads).map_while(|number| worker::start(&gate, number)).collect();
        Self { gate, workers, lanes: AtomicUsize::new(0) }
    }

    /// The number of threads that `run` may use.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Tells the pool that the calling thread runs a batch: as many lanes as compute at once, so
    /// many fewer workers help each, and no core gets two threads.
    pub fn enter(&self) -> Lane<'_> {
        let lanes = self.lanes.fetch_add(1, Ordering::Relaxed) + 1;
        self.gate.set_quiet(lanes >= self.n_threads());
        Lane(self)
    }

    /// Calls `task` once with each number below `n_tasks`, in any order, and returns when all are
    /// done. Which thread runs a task never changes what it computes. Makes no allocation. Tasks
    /// that have not begun when the caller's run should stop are left out, but for the first.
    ///
    /// # Panics
    /// If a task does: with its payload, after the tasks that had begun are done. The pool stays
    /// usable.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let lanes = self.lanes.load(Ordering::Relaxed).max(1);
        let helpers = self.n_threads().saturating_sub(lanes).min(n_tasks.saturating_sub(1));
        // A kernel call of one task asks nobody.
        if helpers == 0 || !self.gate.claim() {
            let may_begin = |number: &usize| *number == 0 || watch::look().is_none();
            return (0..n_tasks).take_while(may_begin).for_each(task);
        }
        let stop = Stop::watched();
        let task = &|number: usize| match &stop {
            None => task(number),
            Some(stop) if number == 0 || !stop.is_set() => {
                let _watch = stop.watch();
                task(number);
            }
            Some(_) => self.gate.exhaust(n_tasks),
        };
        self.gate.open(Job::new(task, n_tasks), helpers);
        let own = catch_unwind(AssertUnwindSafe(|| self.gate.draw(task, n_tasks)));
        if own.is_err() {
            self.gate.exhaust(n_tasks);
        }
        let others = self.gate.close();
        if let Some(payload) = own.err().or(others) {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.gate.shut_down();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of tasks, so it ends without one.
            let _ = worker.join();
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let lanes = self.0.lanes.fetch_sub(1, Ordering::Relaxed) - 1;
        self.0.gate.set_quiet(lanes >= self.0.n_threads());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Every task runs once, whatever the number of threads.
    fn check(pool: &Pool, n_tasks: usize) {
        let counts: Vec<AtomicU64> = (0..n_tasks).map(|_| AtomicU64::new(0)).collect();
        pool.run(n_tasks, &|task| {
            counts[task].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn each_task_runs_once() {
        for n_threads in [1, 2, 3, 7] {
            let pool = Pool::new(n_threads);
            assert_eq!(pool.n_threads(), n_threads);
            for n_tasks in [0, 1, 2, 3, 100, 1000] {
                check(&pool, n_tasks);
            }
        }
    }

    #[test]
    fn many_short_jobs_follow_each_other() {
        let pool = Pool::new(4);
        for n_tasks in 0..3000 {
            check(&pool, n_tasks % 9);
        }
    }

    #[test]
    fn several_lanes_call_at_once() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _lane = pool.enter();
                    (0..500).for_each(|n_tasks| check(&pool, n_tasks % 17));
                });
            }
            (0..500).for_each(|n_tasks| check(&pool, n_tasks % 17));
        });
    }

    #[test]
    fn callers_that_are_no_lanes_share_the_workers() {
        let pool = Pool::new(4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|n_tasks| check(&pool, n_tasks % 17)));
            }
        });
    }

    #[test]
    fn a_task_may_call_the_pool() {
        let pool = Pool::new(3);
        let sum = AtomicU64::new(0);
        pool.run(10, &|_| {
            pool.run(10, &|inner| {
                sum.fetch_add(inner as u64, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 450);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        for n_threads in [1, 2, 4] {
            let pool = Pool::new(n_threads);
            for bad in 0..20 {
                let run = || pool.run(20, &|task| assert!(task != bad, "task {task} is bad"));
                let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
                let text = payload.downcast_ref::<String>().unwrap();
                assert_eq!(*text, format!("task {bad} is bad"));
                check(&pool, 50);
            }
        }
    }

    #[test]
    fn a_run_that_should_stop_begins_no_further_task() {
        for n_threads in [1, 3] {
            let pool = Pool::new(n_threads);
            let (stop, n_begun) = (Stop::default(), AtomicU64::new(0));
            let watch = stop.watch();
            pool.run(1000, &|_| {
                n_begun.fetch_add(1, Ordering::Relaxed);
                stop.set();
                // Every thread watches.
                assert!(crate::pace(crate::OPERATIONS_BETWEEN_LOOKS).is_some());
            });
            // Each thread may have asked just before.
            let n_begun = n_begun.into_inner();
            assert!((1..=n_threads as u64).contains(&n_begun), "{n_begun}");
            drop(watch);
            check(&pool, 50);
        }
    }

    #[test]
    fn tasks_really_run_at_the_same_time() {
        let pool = Pool::new(2);
        let arrived = AtomicU64::new(0);
        // Each of the two tasks waits for the other, which one thread alone could not do.
        pool.run(2, &|_| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn lanes_that_fill_the_pool_compute_alone() {
        let pool = Pool::new(2);
        let (_one, _two) = (pool.enter(), pool.enter());
        let here = std::thread::current().id();
        pool.run(50, &|_| assert_eq!(std::thread::current().id(), here));
    }

    #[test]
    fn lanes_that_compute_at_once_never_use_more_threads_than_there_are() {
        let pool = Pool::new(3);
        let (running, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let entered = std::sync::Barrier::new(2);
        let task = |_: usize| {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            (0..50).for_each(|_| std::thread::yield_now());
            running.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _lane = pool.enter();
                    // Both count as lanes before either looks for helpers.
                    entered.wait();
                    (0..20).for_each(|_| pool.run(40, &task));
                    entered.wait();
                });
            }
        });
        assert!((2..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    }
}
