//! `TensorFlowEngine`: runs the signatures of one servable in a worker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use schedule::Replica;
use session::{Batching, Engine, Error, Priorities, QueueState, Reply, Result, Run};

use crate::queues::{Queues, Target, asked, bad};
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
    /// Whether runs are merged.
    is_batched: AtomicBool,
    /// What is in force; held while that is changed.
    settings: Mutex<Settings>,
}

/// How runs are batched, and who goes first.
struct Settings {
    batching: Batching,
    priorities: Priorities,
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
            settings: Mutex::new(Settings {
                batching: Batching::Off,
                priorities: Priorities::plain(),
            }),
        }
    }

    /// The queues of batches, if runs are merged.
    fn merging(&self) -> Option<&Queues> {
        self.queues.get().filter(|_| self.is_batched.load(Ordering::Acquire))
    }

    /// Puts settings in force, for what waits and what comes. Fails, and changes nothing, if they
    /// contradict each other.
    fn apply(&self, Settings { batching, priorities }: &Settings) -> Result<()> {
        let waiting_max = self.worker.options.queue_max;
        let Some(options) = asked(batching) else {
            let turns = Turns::single(priorities, waiting_max);
            self.worker.set_turns(self.seat, &turns).map_err(bad)?;
            // What waits in the queues is still run.
            self.is_batched.store(false, Ordering::Release);
            return Ok(());
        };
        if let Some(queues) = self.queues.get() {
            queues.set_options(options, priorities)?;
        } else {
            let (worker, seat, signatures) = (&self.worker, self.seat, &self.signatures);
            let target = Target { worker, seat, signatures };
            let queues = Queues::new(&target, options, priorities)?;
            self.queues.get_or_init(|| queues);
        }
        let turns = Turns::batches(priorities, waiting_max);
        self.worker.set_turns(self.seat, &turns).map_err(bad)?;
        self.is_batched.store(true, Ordering::Release);
        Ok(())
    }

    /// What is known of the runs that go to the worker one by one.
    fn singles(&self) -> Vec<QueueState> {
        let settings = self.settings.lock();
        let why = match settings.batching {
            Batching::Off => "batching is off",
            Batching::Proved(_) | Batching::Asked(_) => {
                "rows of TensorFlow's graphs are not proved to be independent"
            }
        };
        let state = |(name, (number, _)): (&String, &(u32, usize))| {
            Some(QueueState {
                signature: name.clone(),
                device: self.worker.role.placement.device.clone(),
                why_single: Some(why.to_owned()),
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
            reply(Err(Error::NotFound(text)));
            return;
        };
        if run.is_moot() {
            reply(Err(Error::Cancelled("nobody waits for the answer".to_owned())));
            return;
        }
        if let Some(queues) = self.merging() {
            queues.push(run, reply);
            return;
        }
        self.worker.run(Sent { run, reply, seat: self.seat, signature });
    }

    fn name(&self) -> &'static str {
        "tensorflow"
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        let mut settings = self.settings.lock();
        let priorities = settings.priorities.clone();
        let new = Settings { batching: batching.clone(), priorities };
        self.apply(&new)?;
        *settings = new;
        Ok(())
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        let mut settings = self.settings.lock();
        let batching = settings.batching.clone();
        let new = Settings { batching, priorities: priorities.clone() };
        self.apply(&new)?;
        *settings = new;
        Ok(())
    }

    fn forecast(&self, run: &Run) -> Option<Replica> {
        if let Some(queues) = self.merging() {
            return queues.forecast(run);
        }
        let (signature, _) = *self.signatures.get(&run.signature)?;
        self.worker.forecast(self.seat, signature)
    }

    fn queues(&self) -> Vec<QueueState> {
        self.merging().map_or_else(|| self.singles(), Queues::snapshot)
    }
}

impl Drop for TensorFlowEngine {
    fn drop(&mut self) {
        self.worker.leave(self.seat);
    }
}
