//! `FakeEngine`: an engine for tests, which answers at once or when it is told to, and remembers
//! what it was told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use schedule::Replica;
use status::Result;

use crate::batching::{Batching, Priorities, QueueState};
use crate::engine::{Engine, Reply, Run};

/// An engine without a model; its answers are empty.
#[derive(Default)]
pub struct FakeEngine {
    /// Set if the engine keeps its replies instead of answering.
    pub is_slow: bool,
    /// The replies that it keeps.
    pub replies: Mutex<Vec<Reply>>,
    /// The number of runs that the engine was given.
    pub n_runs: AtomicUsize,
    /// The time at which the engine says that it would answer.
    pub forecast: Option<Replica>,
    /// The token that stays with the run.
    pub held: Mutex<Option<Arc<()>>>,
    /// The ways of batching that the engine was told.
    pub batchings: Mutex<Vec<Batching>>,
    /// The weights that it was told.
    pub weights: Mutex<Vec<u32>>,
}

impl FakeEngine {
    /// One that keeps its replies.
    pub fn slow() -> Self {
        Self { is_slow: true, ..Self::default() }
    }
}

impl Engine for FakeEngine {
    fn start(&self, _: Run, reply: Reply) {
        self.n_runs.fetch_add(1, Ordering::Relaxed);
        if self.is_slow {
            self.replies.lock().push(reply);
        } else {
            reply(Ok(Vec::new()));
        }
    }

    fn name(&self) -> &'static str {
        "fake"
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        self.batchings.lock().push(batching.clone());
        Ok(())
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        self.weights.lock().push(priorities.weight);
        Ok(())
    }

    fn expect(&self) {}

    fn prepare(&self) {}

    fn forecast(&self, _: &Run) -> Option<Replica> {
        self.forecast
    }

    fn end(&self) -> Option<Weak<()>> {
        self.held.lock().as_ref().map(Arc::downgrade)
    }

    fn queues(&self) -> Vec<QueueState> {
        Vec::new()
    }
}
