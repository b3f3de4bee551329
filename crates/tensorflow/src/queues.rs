//! `Queues`: the runs of one servable that are merged into batches before they go to its worker.
//!
//! TensorFlow's graphs are not ours to look into, so nothing is known of their rows: they are
//! merged only where that is asked for, as TensorFlow Serving does. All else goes to the worker at
//! once, and takes its turn there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use batch::Class;
use device::Workspace;
use parking_lot::Mutex;
use schedule::{
    Admission, Blame, Control, Fault, Lanes, QueueId, QueueOptions, Replica, Share, Task, Work,
};
use session::{Batching, Error, LEVEL_MAX, Priorities, QueueState, Reply, Result, Run};
use tensor::Tensor;

use crate::worker::{Sent, Worker};

/// How often a lane that waits for an answer looks whether anybody else does.
const PATROL: Duration = Duration::from_millis(20);

/// The queues of a servable's signatures. The lanes only wait for the worker: each is a batch under
/// way there. All models in the worker share them, each by its weight.
pub(crate) struct Queues {
    signatures: BTreeMap<String, QueueId>,
    settings: Mutex<Settings>,
    /// Where it runs.
    worker: Arc<Worker>,
    seat: u64,
    // Dropped in this order, so that nothing is pushed to lanes that have ended.
    share: Share,
    _lanes: Arc<Lanes>,
}

/// What of the settings is asked for with each run.
struct Settings {
    pads_shapes: bool,
    default_level: usize,
}

/// What of a worker a queue needs.
pub(crate) struct Target<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) seat: u64,
    /// The signatures, their places in the worker, and how many outputs they have.
    pub(crate) signatures: &'a BTreeMap<String, (u32, usize)>,
}

impl Queues {
    /// Queues for all signatures. Fails if the options contradict each other, or the system has no
    /// threads.
    pub(crate) fn new(
        target: &Target<'_>,
        options: &batch::Options,
        priorities: &Priorities,
    ) -> Result<Self> {
        let lanes = target.worker.lanes();
        let lanes = lanes.map_err(|error| Error::ResourceExhausted(error.to_string()))?;
        let share = lanes.share(priorities.weight);
        let mut signatures = BTreeMap::new();
        for (name, (signature, n_outputs)) in target.signatures {
            let work = SignatureWork {
                worker: Arc::clone(target.worker),
                seat: target.seat,
                signature: *signature,
                n_outputs: *n_outputs,
            };
            let options = queue_options(options, priorities);
            let queue = share.queue(Arc::new(work), options).map_err(bad)?;
            signatures.insert(name.clone(), queue);
        }
        let settings = Mutex::new(Settings::new(options, priorities));
        let (worker, seat) = (Arc::clone(target.worker), target.seat);
        Ok(Self { signatures, settings, worker, seat, share, _lanes: lanes })
    }

    /// Puts other settings in force. Fails, and changes nothing, if they contradict each other.
    pub(crate) fn set_options(
        &self,
        options: &batch::Options,
        priorities: &Priorities,
    ) -> Result<()> {
        let new = queue_options(options, priorities);
        new.batch.validate().map_err(bad)?;
        for queue in self.signatures.values() {
            self.share.set_options(*queue, new.clone()).map_err(bad)?;
        }
        self.share.set_weight(priorities.weight);
        *self.settings.lock() = Settings::new(options, priorities);
        Ok(())
    }

    /// When a run that starts now would be answered.
    pub(crate) fn forecast(&self, run: &Run) -> Option<Replica> {
        let queue = *self.signatures.get(&run.signature)?;
        let n_rows = batch::n_rows(&run.inputs).ok()?;
        let forecast = self.share.forecast(queue, n_rows);
        Some(Replica { forecast, until_ready: self.worker.until_ready(self.seat) })
    }

    /// Pushes the task of a run, whose signature there is.
    pub(crate) fn push(&self, run: Run, reply: Reply) {
        let Some(queue) = self.signatures.get(&run.signature).copied() else {
            let text = format!("no signature is called {}", run.signature);
            return reply(Err(Error::NotFound(text)));
        };
        let n_rows = match batch::n_rows(&run.inputs) {
            Ok(n_rows) => n_rows,
            Err(error) => return reply(Err(bad(error))),
        };
        let Settings { pads_shapes, default_level } = *self.settings.lock();
        let class = Class::new(&run.inputs, pads_shapes);
        let control = Control { deadline: run.deadline, is_cancelled: run.is_cancelled };
        let reply = Box::new(move |answer: std::result::Result<_, schedule::Failure>| {
            reply(answer.map_err(|failure| session::failure(&failure, true)));
        });
        let level = run.level.unwrap_or(default_level).min(LEVEL_MAX);
        let task = Task::new(run.inputs, run.outputs, control, n_rows, reply);
        self.share.push(queue, task, class, level);
    }

    /// What is known of the queues.
    pub(crate) fn snapshot(&self) -> Vec<QueueState> {
        let default_level = self.settings.lock().default_level;
        let state = |(signature, queue): (&String, &QueueId)| {
            Some(QueueState {
                signature: signature.clone(),
                device: self.worker.role.placement.device.clone(),
                default_level,
                why_single: None,
                snapshot: self.share.snapshot(*queue)?,
            })
        };
        self.signatures.iter().filter_map(state).collect()
    }
}

/// The settings of the queues, if runs are to be merged.
pub(crate) fn asked(batching: &Batching) -> Option<&batch::Options> {
    match batching {
        Batching::Asked(options) => Some(options),
        Batching::Off | Batching::Proved(_) => None,
    }
}

impl Settings {
    fn new(options: &batch::Options, priorities: &Priorities) -> Self {
        let (pads_shapes, default_level) = (options.pads_shapes, priorities.default_level);
        Self { pads_shapes, default_level }
    }
}

fn queue_options(options: &batch::Options, priorities: &Priorities) -> QueueOptions {
    QueueOptions { batch: priorities.applied_to(options), admission: Admission::Room }
}

/// What settings that contradict each other are to a client.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(crate) fn bad(error: batch::Error) -> Error {
    Error::InvalidArgument(error.to_string())
}

/// Runs the batches of a signature in the worker.
struct SignatureWork {
    worker: Arc<Worker>,
    seat: u64,
    signature: u32,
    n_outputs: usize,
}

impl Work for SignatureWork {
    fn run(
        &self,
        inputs: &[Tensor],
        control: &Control,
        _: &mut Workspace,
    ) -> std::result::Result<Vec<Tensor>, Fault> {
        let run = Run {
            signature: String::new(),
            inputs: inputs.to_vec(),
            outputs: (0..self.n_outputs).collect(),
            deadline: control.deadline,
            level: None,
            is_cancelled: Arc::clone(&control.is_cancelled),
        };
        let (send, receive) = mpsc::channel();
        let reply: Reply = Box::new(move |answer| drop(send.send(answer)));
        let (seat, signature) = (self.seat, self.signature);
        self.worker.run(Sent { run, reply, seat, signature });
        let answer = await_answer(&receive, control);
        answer.map_err(|error| Fault { error: Arc::new(error), blame: Blame::Machine })
    }

    /// It may write to variables, for all that we know.
    fn is_repeatable(&self) -> bool {
        false
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        // Nothing is known of what TensorFlow does with them.
        false
    }
}

/// The answer of the worker. TensorFlow cannot end a run that nobody waits for, but the lane need
/// not wait for it.
fn await_answer(
    receive: &mpsc::Receiver<Result<Vec<Tensor>>>,
    control: &Control,
) -> Result<Vec<Tensor>> {
    loop {
        match receive.recv_timeout(PATROL) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) if control.is_cancelled.load(Ordering::Relaxed) => {
                return Err(Error::Cancelled("nobody waits for the answer".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal("the run was lost".to_owned()));
            }
        }
    }
}
