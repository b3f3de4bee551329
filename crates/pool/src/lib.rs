//! The compute threads that kernels share: spin briefly, then park. The pool does not know what is
//! computed.

mod chunks;

/// A fixed number of threads that share the tasks of one kernel call.
#[derive(Debug)]
pub struct Pool {
    n_threads: usize,
}

impl Pool {
    /// A pool of `n_threads` threads, the caller of `run` among them.
    pub fn new(n_threads: usize) -> Self {
        assert!(n_threads > 0);
        Self { n_threads }
    }

    /// The number of threads that `run` may use.
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Calls `task` once with each number below `n_tasks`, in any order, and returns when all are
    /// done. Which thread runs a task never changes what it computes.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..n_tasks).for_each(task);
    }
}
