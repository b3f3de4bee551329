//! `Task`: one request's rows, and whoever waits for the answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use batch::Parts;
use device::{Space, Workspace};
use parking_lot::Mutex;
use tensor::Tensor;

use crate::error::{Error, Refusal};

/// One request's rows.
pub struct Task {
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The outputs wanted, by their numbers.
    pub outputs: Vec<usize>,
    /// The time from which the answer is no longer wanted.
    pub deadline: Option<Instant>,
    /// Set when nobody waits any more.
    pub is_cancelled: Arc<AtomicBool>,
    /// Its rows, as its queue counts them: one that is not batched counts as one row.
    pub n_rows: usize,
    /// The time at which the task came.
    pub came: Instant,
    answer: Mutex<TaskAnswer>,
}

struct TaskAnswer {
    /// Gone when it was called.
    reply: Option<Reply>,
    parts: Parts,
}

/// Takes the answer of a task, from any thread. Dropped unused, it tells that the run was lost.
pub type Reply = Box<dyn FnOnce(Result<Vec<Tensor>, Failure>) + Send>;

/// The reason that there is no answer.
#[derive(Debug, Clone)]
pub enum Failure {
    /// It was not run.
    Refused(Refusal),
    /// Running it failed.
    Failed(Fault),
}

/// A run that failed.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The error, in the words of the work that ran the task.
    pub error: Arc<dyn std::error::Error + Send + Sync>,
    /// The party to blame.
    pub blame: Blame,
}

/// The party to blame for a failed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The rows, maybe those of one task only: the others deserve another run.
    Rows,
    /// The machine or the time: another run would fare no better.
    Machine,
}

/// The conditions under which a run should stop early.
#[derive(Debug, Clone)]
pub struct Control {
    /// The time from which no task of the batch can be answered in time.
    pub deadline: Option<Instant>,
    /// Set when nobody waits any more.
    pub is_cancelled: Arc<AtomicBool>,
}

/// The work behind a queue: runs its batches.
pub trait Work: Send + Sync {
    /// Runs the rows of a batch on the calling thread, with activations in `workspace`; gives all
    /// outputs.
    fn run(
        &self,
        inputs: &[Tensor],
        control: &Control,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>, Fault>;

    /// Returns whether a run leaves nothing behind, so that it may be repeated.
    fn is_repeatable(&self) -> bool;

    /// Returns whether a run on these inputs takes about as long as runs before it: neither their
    /// size nor their values can make it much longer. Only such a run may take the thread of its
    /// caller, who may be reading the requests of others.
    fn is_steady(&self, inputs: &[Tensor]) -> bool;

    /// The bytes that a run on these inputs needs besides the weights; `None` if there is no
    /// telling.
    fn needs(&self, inputs: &[Tensor]) -> Option<u64> {
        let _ = inputs;
        None
    }

    /// The bytes that a run may need, where the device has `free_bytes` left: fewer if the paying
    /// owner has a limit, others if memory was set aside for it.
    fn room(&self, free_bytes: u64) -> u64 {
        free_bytes
    }

    /// The space whose memory its runs have, if that is not the lanes'.
    fn space(&self) -> Option<&Arc<Space>> {
        None
    }
}

impl Task {
    /// A task of `n_rows` rows that came now.
    pub fn new(
        inputs: Vec<Tensor>,
        outputs: Vec<usize>,
        control: Control,
        n_rows: usize,
        reply: Reply,
    ) -> Self {
        let answer = TaskAnswer { reply: Some(reply), parts: Parts::new(n_rows) };
        Self {
            inputs,
            outputs,
            deadline: control.deadline,
            is_cancelled: control.is_cancelled,
            n_rows,
            came: Instant::now(),
            answer: Mutex::new(answer),
        }
    }

    /// Returns whether nobody waits for the answer any more.
    pub fn is_moot(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn control(&self) -> Control {
        Control { deadline: self.deadline, is_cancelled: Arc::clone(&self.is_cancelled) }
    }

    /// Answers with a failure, unless it has been answered.
    pub(crate) fn fail(&self, failure: Failure) {
        let reply = self.answer.lock().reply.take();
        if let Some(reply) = reply {
            reply(Err(failure));
        }
    }

    /// Takes the wanted outputs of some rows; answers when those were the last.
    pub(crate) fn answer(&self, start: usize, n_rows: usize, outputs: Vec<Tensor>) {
        let mut answer = self.answer.lock();
        if answer.reply.is_none() {
            return;
        }
        let Some(whole) = answer.parts.add(start, n_rows, outputs) else { return };
        let reply = answer.reply.take();
        drop(answer);
        let whole = whole.map_err(|error| Failure::Refused(Refusal::from_error(error)));
        if let Some(reply) = reply {
            reply(whole);
        }
    }
}

/// Answers tasks whose deadlines came while they waited.
pub(crate) fn fail_expired(expired: Vec<Arc<Task>>) {
    for task in expired {
        let waited = task.came.elapsed();
        task.fail(Failure::Refused(Refusal::from_error(Error::Expired { waited })));
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({} inputs)", self.inputs.len())
    }
}
