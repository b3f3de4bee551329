//! `Queues`: the runs of one servable that are merged into batches before they go to its worker.
//!
//! TensorFlow's graphs are not ours to look into, so nothing is known of their rows: they are
//! merged only where that is asked for, as TensorFlow Serving does. All else goes to the worker at
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use batch::Class;
use device::Workspace;
use parking_lot::Mutex;
use schedule::{Admission, Blame, Control, Fault, Lanes, QueueId, QueueOptions, Share, Task, Work};
use session::{Batching, Error, LEVEL_MAX, QueueState, Reply, Result, Run};
use tensor::Tensor;

use crate::worker::{Sent, Worker};

/// The priority of requests that name none: the most urgent.
const DEFAULT_LEVEL: usize = 0;

/// The queues of a servable's signatures. Its lanes only wait for the worker: each is a batch under
/// way there.
pub(crate) struct Queues {
    signatures: BTreeMap<String, QueueId>,
    options: Mutex<batch::Options>,
    /// Where the worker computes.
    device: String,
    // Dropped in this order, so that nothing is pushed to lanes that have ended.
    share: Share,
    _lanes: Lanes,
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
    pub(crate) fn new(target: &Target<'_>, options: &batch::Options) -> Result<Self> {
        let n_lanes = target.worker.options.n_threads;
        let lanes = Lanes::start(schedule::Options { n_lanes, inline_max: Duration::ZERO });
        let lanes = lanes.map_err(|error| Error::ResourceExhausted(error.to_string()))?;
        let share = lanes.share(1);
        let mut signatures = BTreeMap::new();
        for (name, (signature, n_outputs)) in target.signatures {
            let work = SignatureWork {
                worker: Arc::clone(target.worker),
                seat: target.seat,
                signature: *signature,
                n_outputs: *n_outputs,
            };
            let queue = share.queue(Arc::new(work), queue_options(options)).map_err(bad)?;
            signatures.insert(name.clone(), queue);
        }
        let device = target.worker.role.placement.device.clone();
        let options = Mutex::new(options.clone());
        Ok(Self { signatures, options, device, share, _lanes: lanes })
    }

    /// Puts other options in force.
    pub(crate) fn set_options(&self, options: &batch::Options) -> Result<()> {
        options.validate().map_err(bad)?;
        for queue in self.signatures.values() {
            self.share.set_options(*queue, queue_options(options)).map_err(bad)?;
        }
        *self.options.lock() = options.clone();
        Ok(())
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
        let pads_shapes = self.options.lock().pads_shapes;
        let class = Class::new(&run.inputs, pads_shapes);
        let control = Control { deadline: run.deadline, is_cancelled: run.is_cancelled };
        let reply = Box::new(move |answer: std::result::Result<_, schedule::Failure>| {
            reply(answer.map_err(|failure| session::failure(&failure, true)));
        });
        let level = run.level.unwrap_or(DEFAULT_LEVEL).min(LEVEL_MAX);
        let task = Task::new(run.inputs, run.outputs, control, n_rows, reply);
        self.share.push(queue, task, class, level);
    }

    /// What is known of the queues.
    pub(crate) fn snapshot(&self) -> Vec<QueueState> {
        let state = |(signature, queue): (&String, &QueueId)| {
            Some(QueueState {
                signature: signature.clone(),
                device: self.device.clone(),
                default_level: DEFAULT_LEVEL,
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

fn queue_options(options: &batch::Options) -> QueueOptions {
    QueueOptions { batch: options.clone(), admission: Admission::Room }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn bad(error: batch::Error) -> Error {
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
        let lost = || Err(Error::Internal("the run was lost".to_owned()));
        let answer = receive.recv().unwrap_or_else(|_| lost());
        answer.map_err(|error| Fault { error: Arc::new(error), blame: Blame::Machine })
    }

    /// It may write to variables, for all that we know.
    fn is_repeatable(&self) -> bool {
        false
    }
}
