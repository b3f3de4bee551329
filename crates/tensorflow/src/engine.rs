//! `TensorFlowEngine`: runs the signatures of one servable in a worker.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use schedule::Replica;
use session::{
    Batching, Engine, Priorities, QueueSettings, QueueState, Queues, Reply, Run, Settings,
};
use status::{Result, Status};

use crate::queues;
use crate::worker::{Sent, Turns, Worker};

/// A model in a worker. Dropping it unloads the model, and waits for the end of a worker that it
/// was the last model of.
pub(crate) struct TensorFlowEngine {
    worker: Arc<Worker>,
    seat: u64,
    /// The places of the signatures in the worker, and how many outputs they have, by name.
    signatures: BTreeMap<String, (u32, usize)>,
    /// There if runs have ever been merged.
    queues: OnceLock<Queues>,
    settings: Settings,
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
            settings: Settings::plain(),
        }
    }

    /// The queues of batches, if runs are merged.
    fn merging(&self, settings: &QueueSettings) -> Option<&Queues> {
        self.queues.get().filter(|_| matches!(settings.batching, Batching::Asked(_)))
    }

    /// Puts settings in force, for what waits and what comes. Fails, and changes nothing, if they
    /// contradict each other.
    fn apply(&self, new: &QueueSettings) -> Result<()> {
        let waiting_max = self.worker.options.queue_max;
        let turns = match new.batching {
            Batching::Asked(_) => {
                self.made_queues()?.apply(new)?;
                Turns::batches(&new.priorities, waiting_max)
            }
            // What waits in the queues is still run.
            Batching::Off | Batching::Proved(_) => Turns::single(&new.priorities, waiting_max),
        };
        let set = self.worker.set_turns(self.seat, &turns);
        set.map_err(|error| Status::invalid(error.to_string()))
    }

    /// The queues, made if they are not there; settings are changed one at a time.
    fn made_queues(&self) -> Result<&Queues> {
        if self.queues.get().is_none() {
            let queues = queues::queues(&self.worker, self.seat, &self.signatures)?;
            return Ok(self.queues.get_or_init(|| queues));
        }
        Ok(self.queues.get().expect("it is there"))
    }

    /// Returns the state of the runs that go to the worker one by one.
    fn singles(&self, settings: &QueueSettings) -> Vec<QueueState> {
        let why = queues::row_facts().why_single(&settings.batching);
        let state = |(name, (number, _)): (&String, &(u32, usize))| {
            Some(QueueState {
                signature: name.clone(),
                device: self.worker.role.placement.device.clone(),
                why_single: Some(why.clone()),
                default_level: settings.priorities.default_level,
                snapshot: self.worker.queue(self.seat, *number)?,
            })
        };
        self.signatures.iter().filter_map(state).collect()
    }
}

impl Engine for TensorFlowEngine {
    fn start(&self, run: Run, reply: Reply) {
        let Some((signature, _)) = self.signatures.get(&run.signature).copied() else {
            let text = format!("no signature is called {}", run.signature);
            reply(Err(Status::not_found(text)));
            return;
        };
        if run.is_moot() {
            reply(Err(Status::cancelled("nobody waits for the answer")));
            return;
        }
        let settings = self.settings.load();
        if let Some(queues) = self.merging(&settings) {
            return queues.push(run, reply, settings);
        }
        drop(settings);
        self.worker.run(Sent { run, reply, seat: self.seat, signature });
    }

    fn name(&self) -> &'static str {
        "tensorflow"
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        self.settings.set_batching(batching, |new| self.apply(new))
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        self.settings.set_priorities(priorities, |new| self.apply(new))
    }

    /// The memory is the worker's own, which does not rest.
    fn expect(&self) {}

    /// TensorFlow makes itself ready with the first runs.
    fn prepare(&self) {}

    fn forecast(&self, run: &Run) -> Option<Replica> {
        let settings = self.settings.load();
        if let Some(queues) = self.merging(&settings) {
            let forecast = queues.forecast(run, &settings)?;
            return Some(Replica { forecast, until_ready: self.worker.until_ready(self.seat) });
        }
        let (signature, _) = *self.signatures.get(&run.signature)?;
        self.worker.forecast(self.seat, signature)
    }

    /// It waits for the worker when it is dropped.
    fn end(&self) -> Option<Weak<()>> {
        None
    }

    fn queues(&self) -> Vec<QueueState> {
        let settings = self.settings.load();
        let merging = self.merging(&settings);
        merging.map_or_else(|| self.singles(&settings), |queues| queues.snapshot(&settings))
    }
}

impl Drop for TensorFlowEngine {
    fn drop(&mut self) {
        self.worker.leave(self.seat);
    }
}
