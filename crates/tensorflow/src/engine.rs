//! `TensorFlowEngine`: runs the signatures of one servable in a worker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use session::{Batching, Engine, Error, QueueState, Reply, Result, Run};

use crate::queues::{Queues, Target, asked};
use crate::worker::{Sent, Worker};

/// A model in a worker. Dropping it unloads the model, and waits for the end of a worker that it
/// was the last model of.
pub(crate) struct TensorFlowEngine {
    worker: Arc<Worker>,
    seat: u64,
    /// The places of the signatures in the worker, and how many outputs they have, by name.
    signatures: BTreeMap<String, (u32, usize)>,
    /// There if runs have ever been merged.
    queues: OnceLock<Queues>,
    /// Whether runs are merged.
    is_batched: AtomicBool,
    /// Held while batching is changed.
    change: Mutex<()>,
}

impl TensorFlowEngine {
    /// The engine of a model that was loaded, with its signatures and how many outputs they have,
    /// in the order in which the worker knows them.
    pub(crate) fn new(
        worker: Arc<Worker>,
        seat: u64,
        signatures: impl Iterator<Item = (String, usize)>,
    ) -> Self {
        let numbered = signatures.zip(0u32..).map(|((name, n), number)| (name, (number, n)));
        Self {
            worker,
            seat,
            signatures: numbered.collect(),
            queues: OnceLock::new(),
            is_batched: AtomicBool::new(false),
            change: Mutex::default(),
        }
    }
}

impl Engine for TensorFlowEngine {
    fn start(&self, run: Run, reply: Reply) {
        let Some((signature, _)) = self.signatures.get(&run.signature).copied() else {
            let text = format!("no signature is called {}", run.signature);
            reply(Err(Error::NotFound(text)));
            return;
        };
        if run.is_moot() {
            reply(Err(Error::Cancelled("nobody waits for the answer".to_owned())));
            return;
        }
        let is_batched = self.is_batched.load(Ordering::Acquire);
        if let Some(queues) = self.queues.get().filter(|_| is_batched) {
            queues.push(run, reply);
            return;
        }
        self.worker.run(Sent { run, reply, seat: self.seat, signature });
    }

    fn name(&self) -> &'static str {
        "tensorflow"
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        let _change = self.change.lock();
        let Some(options) = asked(batching) else {
            // What waits in the queues is still run.
            self.is_batched.store(false, Ordering::Release);
            return Ok(());
        };
        if let Some(queues) = self.queues.get() {
            queues.set_options(options)?;
        } else {
            let (worker, seat, signatures) = (&self.worker, self.seat, &self.signatures);
            let queues = Queues::new(&Target { worker, seat, signatures }, options)?;
            self.queues.get_or_init(|| queues);
        }
        self.is_batched.store(true, Ordering::Release);
        Ok(())
    }

    fn queues(&self) -> Vec<QueueState> {
        self.queues.get().map_or_else(Vec::new, Queues::snapshot)
    }
}

impl Drop for TensorFlowEngine {
    fn drop(&mut self) {
        self.worker.leave(self.seat);
    }
}
