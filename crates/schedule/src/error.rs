//! Errors of tasks that were not run.

use std::time::Duration;

/// A refusal, and when to try again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The error.
    pub error: Error,
    /// The time until there will be room again, as far as can be told.
    pub retry_after: Option<Duration>,
}

/// The reason that a task is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The queue has no place for it, or a batch could not be made or taken apart.
    #[error(transparent)]
    Batch(#[from] batch::Error),
    /// The answer would come too late.
    #[error(
        "the answer would take {} ms, and its deadline is in {} ms: {} requests wait already",
        .predicted.as_millis(),
        .left.as_millis(),
        n_waiting
    )]
    TooLate {
        /// The predicted time until the answer.
        predicted: Duration,
        /// The time left until the deadline.
        left: Duration,
        /// The number of tasks that wait on the device.
        n_waiting: usize,
    },
    /// The deadline came while it waited.
    #[error("the deadline passed after {} ms in the queue", .waited.as_millis())]
    Expired {
        /// The time that the task waited.
        waited: Duration,
    },
    /// The batch ran for longer than any may.
    #[error("the run was stopped after {} s, the longest that a run may take", .max.as_secs_f64())]
    RanTooLong {
        /// The longest that a batch may run.
        max: Duration,
    },
    /// Runs of the same model go on for far longer than expected, and no more may.
    #[error(
        "{n_runs} runs of this model have gone on for far longer than expected: it gets no new \
         ones until one of them ends"
    )]
    Overrun {
        /// The number of detached runs of the model.
        n_runs: usize,
    },
    /// Its client is gone.
    #[error("nobody waits for the answer")]
    Cancelled,
    /// The queue is no more.
    #[error("the model is being unloaded")]
    Closed,
}

impl Refusal {
    pub(crate) fn from_error(error: impl Into<Error>) -> Self {
        Self { error: error.into(), retry_after: None }
    }

    /// Returns whether there was no memory to put a batch together or to take it apart.
    pub(crate) fn is_for_memory(&self) -> bool {
        let memory =
            |error: &batch::Error| matches!(error, batch::Error::Tensor(tensor::Error::Memory(_)));
        matches!(&self.error, Error::Batch(error) if memory(error))
    }
}
