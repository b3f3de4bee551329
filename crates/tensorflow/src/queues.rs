//! The queues of runs that are merged into batches before they go to their worker.
//!
//! TensorFlow's graphs are not ours to look into, so nothing is known of their rows: they are
//! merged only where that is asked for, as TensorFlow Serving does. All else goes to the worker at
//! once, and takes its turn there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use device::Workspace;
use schedule::{Blame, Control, Fault, Work};
use session::{QueuedSignature, Queues, Reply, RowFacts, Run, Singles};
use status::{Result, Status};
use tensor::Tensor;

use crate::worker::{Sent, Worker};

/// The interval at which a lane that waits for an answer checks that anybody else does.
const PATROL: Duration = Duration::from_millis(20);

/// Returns the facts about the rows of TensorFlow's graphs.
pub(crate) fn row_facts() -> RowFacts {
    let mixing = "rows of TensorFlow's graphs are not proved to be independent";
    RowFacts { writes: false, mixing: Some(mixing.to_owned()) }
}

/// Queues for the signatures of a model in a worker, given with their places there and how many
/// outputs they have. The lanes only wait for the worker: each is a batch under way there. All
/// models in the worker share them, each by its weight.
///
/// # Errors
/// If the system has no threads.
pub(crate) fn queues(
    worker: &Arc<Worker>,
    seat: u64,
    signatures: &BTreeMap<String, (u32, usize)>,
) -> Result<Queues> {
    let lanes = worker.lanes().map_err(|error| Status::exhausted(error.to_string()))?;
    let queued = signatures.iter().map(|(name, (signature, n_outputs))| {
        let (signature, n_outputs) = (*signature, *n_outputs);
        let work = SignatureWork { worker: Arc::clone(worker), seat, signature, n_outputs };
        QueuedSignature { name: name.clone(), work: Arc::new(work), rows: row_facts() }
    });
    Queues::new(&worker.role.placement.device, &lanes, Singles::Elsewhere, queued)
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
                return Err(Status::cancelled("nobody waits for the answer"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Status::internal("the run was lost"));
            }
        }
    }
}
