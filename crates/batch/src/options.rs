//! `Options`: how a queue makes its batches.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::time::Time;

/// The settings of a queue. The names in brackets are those of `BatchingParameters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most rows of a task (`max_batch_size`).
    pub task_rows_max: usize,
    /// The most rows of a batch (`max_execution_batch_size`).
    pub batch_rows_max: usize,
    /// The time that a task may wait for others when a lane is free (`batch_timeout_micros`).
    pub timeout: Duration,
    /// The number of batches that may wait (`max_enqueued_batches`).
    pub enqueued_batches_max: usize,
    /// Batches are filled up to the next of these sizes; empty means as they are
    /// (`allowed_batch_sizes`).
    pub allowed_sizes: Vec<usize>,
    /// `true` to pad tasks to the same shape (`pad_variable_length_inputs`).
    pub pads_shapes: bool,
    /// `true` to spread a large task over several batches (`enable_large_batch_splitting`).
    pub splits_tasks: bool,
    /// The order in which tasks leave.
    pub order: Order,
    /// The part that tasks of lower levels take in the batches of higher ones.
    pub mixed_priority: MixedPriority,
    /// Limits of single levels, the most urgent first. Levels that are not listed have none.
    pub levels: Vec<Level>,
}

/// The order in which tasks leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The one that came first.
    Arrival,
    /// The one of the highest priority, and among those the one whose deadline is earliest. A task
    /// counts as due when it has waited for `ageing`, and each level stands `ageing` behind the
    /// next higher one, so that nothing waits for ever.
    Deadline {
        /// The wait that weighs as much as one level.
        ageing: Duration,
    },
}

/// The part that tasks of lower levels take in the batches of higher ones
/// (`mixed_priority_policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedPriority {
    /// They take part like any other.
    Merge,
    /// They fill what room is left up to the largest batch.
    PadToMax,
    /// They fill only what would be padding: up to the next allowed size.
    PadToNextAllowed,
    /// They have batches of their own.
    Isolate,
}

/// The limits of one priority level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// The number of batches of this level that may wait.
    pub enqueued_batches_max: Option<usize>,
    /// The time that its tasks may wait for others.
    pub timeout: Option<Duration>,
    /// The time that its tasks may wait at all: one that has not left by then expires.
    pub wait_max: Option<Duration>,
}

impl Options {
    /// A queue of batches of one task each, whatever its rows: unbatched serving.
    pub fn unbatched(tasks_max: usize) -> Self {
        Self {
            task_rows_max: usize::MAX,
            batch_rows_max: 1,
            timeout: Duration::ZERO,
            enqueued_batches_max: tasks_max,
            allowed_sizes: Vec::new(),
            pads_shapes: false,
            splits_tasks: false,
            order: Order::Arrival,
            mixed_priority: MixedPriority::Merge,
            levels: Vec::new(),
        }
    }

    /// Fails if the settings contradict each other.
    pub fn validate(&self) -> Result<()> {
        let positive = |field, value: usize| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            if value > 0 { Ok(()) } else { Err(Error::NotPositive { field, value }) }
        };
        positive("max_batch_size", self.task_rows_max)?;
        positive("max_execution_batch_size", self.batch_rows_max)?;
        positive("max_enqueued_batches", self.enqueued_batches_max)?;
        if self.allowed_sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::AllowedOrder);
        }
        match (self.allowed_sizes.first(), self.allowed_sizes.last()) {
            (Some(0), _) => Err(Error::AllowedOrder),
            (_, Some(last)) if *last != self.task_rows_max => {
                Err(Error::LastAllowedSize { last: *last, expected: self.task_rows_max })
            }
            _ => Ok(()),
        }
    }

    /// The rows that a batch of `n_rows` is filled up to.
    pub fn padded(&self, n_rows: usize) -> usize {
        let fits = self.allowed_sizes.iter().find(|size| **size >= n_rows);
        if n_rows == 0 { 0 } else { fits.copied().unwrap_or(n_rows) }
    }

    /// The most rows of a batch that is filled up to no more than `rows_max`, at least 1.
    pub fn rows_within(&self, rows_max: usize) -> usize {
        let fits = self.allowed_sizes.iter().rev().find(|size| **size <= rows_max);
        if self.allowed_sizes.is_empty() { rows_max.max(1) } else { fits.copied().unwrap_or(1) }
    }

    /// The time at which a task is taken out of the queue unrun: its deadline, or the end of the
    /// longest wait of its level.
    pub(crate) fn expiry(
        &self,
        level: usize,
        deadline: Option<Time>,
        arrived: Time,
    ) -> Option<Time> {
        let level = self.levels.get(level);
        let patience = level.and_then(|level| level.wait_max).map(|wait| arrived.plus(wait));
        deadline.into_iter().chain(patience).min()
    }

    pub(crate) fn timeout_of(&self, level: usize) -> Duration {
        self.levels.get(level).and_then(|level| level.timeout).unwrap_or(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sizes(sizes: &[usize]) -> Options {
        let base = Options::unbatched(10);
        Options { task_rows_max: 8, batch_rows_max: 8, allowed_sizes: sizes.to_vec(), ..base }
    }

    #[track_caller]
    fn check(options: &Options, expected: &str) {
        let got = options.validate().map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert_eq!(got, expected);
    }

    #[test]
    fn allowed_sizes_rise_up_to_the_largest_batch() {
        check(&with_sizes(&[]), "ok");
        check(&with_sizes(&[2, 8]), "ok");
        check(
            &with_sizes(&[2, 4]),
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; \
             expected 8",
        );
        check(
            &with_sizes(&[4, 2, 8]),
            "allowed_batch_sizes entries must be monotonically increasing",
        );
        check(&with_sizes(&[0, 8]), "allowed_batch_sizes entries must be monotonically increasing");
        let none = Options { enqueued_batches_max: 0, ..with_sizes(&[]) };
        check(&none, "max_enqueued_batches must be positive; was 0");
    }

    #[test]
    fn a_batch_is_filled_up_to_the_next_allowed_size() {
        let options = with_sizes(&[2, 4, 8]);
        let sizes: Vec<usize> = (0..=9).map(|n_rows| options.padded(n_rows)).collect();
        assert_eq!(sizes, [0, 2, 2, 4, 4, 8, 8, 8, 8, 9]);
        let within: Vec<usize> = (0..=9).map(|rows_max| options.rows_within(rows_max)).collect();
        assert_eq!(within, [1, 1, 2, 2, 4, 4, 4, 4, 8, 8]);
    }
}
