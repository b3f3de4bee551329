//! `Engine`: what runs a servable's signatures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use status::Result;
use tensor::Tensor;

use crate::batching::{Batching, Priorities, QueueState};

/// One run of a signature.
#[derive(Debug, Clone)]
pub struct Run {
    /// The signature's name.
    pub signature: String,
    /// The inputs, in the order of the signature's.
    pub inputs: Vec<Tensor>,
    /// The outputs wanted, by their places among the signature's.
    pub outputs: Vec<usize>,
    /// The time from which the answer is no longer wanted.
    pub deadline: Option<Instant>,
    /// Its priority, 0 being the most urgent; the model's own if none is given.
    pub level: Option<usize>,
    /// Set when nobody waits any more.
    pub is_cancelled: Arc<AtomicBool>,
}

impl Run {
    /// Returns whether nobody waits for the answer any more.
    pub fn is_moot(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// The urgency of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Urgency {
    /// The time from which the answer is no longer wanted.
    pub deadline: Option<Instant>,
    /// Its priority, 0 being the most urgent; the model's own if none is given.
    pub level: Option<usize>,
}

/// The lowest priority there is.
pub const LEVEL_MAX: usize = 15;

/// Takes the answer of a run, from any thread. Dropped unused, it tells that the run was lost.
pub type Reply = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// An engine, which runs a servable's signatures: our own executor, a worker process, a GPU stream.
///
/// No method has a default, so that an engine which wraps another cannot forget one.
pub trait Engine: Send + Sync {
    /// Starts a run. The reply comes once, from any thread, maybe before this returns.
    fn start(&self, run: Run, reply: Reply);

    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Puts another way of batching in force, for what waits and what comes. Fails, and changes
    /// nothing, if the settings contradict each other. An engine that has no queues of its own
    /// does nothing.
    fn set_batching(&self, batching: &Batching) -> Result<()>;

    /// Puts other priorities in force, for what waits and what comes. An engine that has no queues
    /// of its own does nothing.
    fn set_priorities(&self, priorities: &Priorities) -> Result<()>;

    /// Tells that a run is on its way, so that what it will need can be made ready meanwhile on
    /// another thread. Takes no time worth mentioning.
    fn expect(&self);

    /// Makes ready for runs of the sizes that it is known to get, as far as that is worth it: on
    /// this thread, before the first of them comes. What fails here is left to the runs.
    fn prepare(&self);

    /// Predicts the time until a run that starts now would be answered; `None` if there is no
    /// telling.
    fn forecast(&self, run: &Run) -> Option<schedule::Replica>;

    /// A token that is gone when all memory of the engine was given back: a run may hold on to it
    /// for a moment after it was answered. `None` if that ends with the engine.
    fn end(&self) -> Option<Weak<()>>;

    /// The state of its queues.
    fn queues(&self) -> Vec<QueueState>;
}
