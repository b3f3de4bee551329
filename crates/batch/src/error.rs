//! Errors of refused tasks and failed batches. The texts are those of TensorFlow Serving
//! (`batching_session.cc`, `shared_batch_scheduler.h`, `bundle_factory_util.cc`).

/// A refusal of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A task without inputs has no rows.
    #[error("Batching Run() must have at least one input tensor")]
    NoInputs,
    /// A scalar has no rows.
    #[error("Batching Run() input tensors must have at least one dimension")]
    ScalarInput,
    /// The inputs disagree on the number of rows.
    #[error("Batching Run() input tensors must have equal 0th-dimension size")]
    UnequalRows,
    /// The task has more rows than any batch may have.
    #[error("Task size {n_rows} is larger than maximum input batch size {max}")]
    TaskTooLarge {
        /// Its rows.
        n_rows: usize,
        /// The most that a task may have.
        max: usize,
    },
    /// As many batches wait as may.
    #[error(
        "The batch scheduling queue to which this task was submitted is full; currently \
         {n_batches} batches enqueued and max_enqueued_batches is {max}"
    )]
    QueueFull {
        /// The number of waiting batches.
        n_batches: usize,
        /// The number of batches that may wait.
        max: usize,
    },
    /// The same, of a queue that splits tasks.
    #[error(
        "The batch scheduling queue to which this task was submitted is full; task size is \
         {n_rows} but scheduling capacity is only {capacity} (num_enqueued_batches={n_batches}, \
         max_enqueued_batches={max}, open_batch_size={open_rows}, \
         max_execution_batch_size={execution_max})"
    )]
    NoCapacity {
        /// The rows of the task.
        n_rows: usize,
        /// The rows that there is still room for.
        capacity: usize,
        /// The number of waiting batches.
        n_batches: usize,
        /// The number of batches that may wait.
        max: usize,
        /// The rows of the last of them.
        open_rows: usize,
        /// The most rows of a batch.
        execution_max: usize,
    },
    /// The task waited for longer than its deadline allows.
    #[error("Run() timeout exceeded while waiting in batching queue")]
    Expired,
    /// An output without rows cannot be given back to the tasks.
    #[error("Batched output tensor has 0 dimensions")]
    ScalarOutput,
    /// An output has other rows than the inputs.
    #[error(
        "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes \
         of the input tensors"
    )]
    OutputRows,
    /// Tensors of many dimensions are not padded.
    #[error("Only tensors with rank from 1 to 6 can be padded.")]
    PaddedRank,
    /// Handles cannot be put one after another.
    #[error("a tensor of dtype {0} cannot be batched")]
    Handles(tensor::DType),
    /// The last allowed size is not the largest batch.
    #[error(
        "Last entry in allowed_batch_sizes must match max_batch_size; last entry was {last}; \
         expected {expected}"
    )]
    LastAllowedSize {
        /// The last entry.
        last: usize,
        /// The entry that it must be.
        expected: usize,
    },
    /// The allowed sizes are out of order.
    #[error("allowed_batch_sizes entries must be monotonically increasing")]
    AllowedOrder,
    /// A number that must be above zero is not.
    #[error("{field} must be positive; was {value}")]
    NotPositive {
        /// The name of the setting.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// There is no memory, or no such shape, for the batch.
    #[error(transparent)]
    Tensor(#[from] tensor::Error),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &Error, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_texts_are_tensorflow_servings() {
        check(&Error::NoInputs, "Batching Run() must have at least one input tensor");
        check(&Error::ScalarInput, "Batching Run() input tensors must have at least one dimension");
        check(
            &Error::UnequalRows,
            "Batching Run() input tensors must have equal 0th-dimension size",
        );
        check(
            &Error::TaskTooLarge { n_rows: 9, max: 8 },
            "Task size 9 is larger than maximum input batch size 8",
        );
        check(
            &Error::QueueFull { n_batches: 2, max: 2 },
            "The batch scheduling queue to which this task was submitted is full; currently 2 \
             batches enqueued and max_enqueued_batches is 2",
        );
        let no_capacity = Error::NoCapacity {
            n_rows: 9,
            capacity: 5,
            n_batches: 1,
            max: 2,
            open_rows: 3,
            execution_max: 4,
        };
        check(
            &no_capacity,
            "The batch scheduling queue to which this task was submitted is full; task size is 9 \
             but scheduling capacity is only 5 (num_enqueued_batches=1, max_enqueued_batches=2, \
             open_batch_size=3, max_execution_batch_size=4)",
        );
        check(&Error::Expired, "Run() timeout exceeded while waiting in batching queue");
        check(&Error::ScalarOutput, "Batched output tensor has 0 dimensions");
        check(
            &Error::OutputRows,
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension \
             sizes of the input tensors",
        );
    }
}
