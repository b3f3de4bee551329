//! `Stats`: what a queue has done so far.

use std::time::Duration;

use batch::{Batch, Reason, Time};

use crate::agenda::Turned;

/// The counters of a queue.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Tasks that came.
    pub n_asked: u64,
    /// Tasks refused when they came.
    pub n_refused: u64,
    /// Tasks whose deadline came while they waited.
    pub n_expired: u64,
    /// Tasks whose clients went while they waited.
    pub n_cancelled: u64,
    /// Batches that failed and were run again task by task.
    pub n_rerun: u64,
    /// Batches that left, by [`Reason::ALL`].
    pub left: [u64; Reason::ALL.len()],
    /// Rows that ran.
    pub n_rows: u64,
    /// Rows that ran for nothing.
    pub n_padding: u64,
    /// Batches that have run.
    pub n_batches: u64,
    /// The rows of tasks.
    pub task_rows: Histogram<15>,
    /// The rows of batches, without padding.
    pub batch_rows: Histogram<15>,
    /// The rows of batches, with padding.
    pub padded_rows: Histogram<15>,
    /// Microseconds in the queue, of each piece.
    pub queue_micros: Histogram<32>,
    /// Microseconds of each run.
    pub run_micros: Histogram<32>,
    /// Microseconds from when a task came, decoded and checked, until it was refused.
    pub refusal_micros: Histogram<32>,
}

/// Counts of values by powers of two: `counts[i]` are those up to 2^i, the last all above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<const N: usize> {
    /// The counts, each value in one of them.
    pub counts: [u64; N],
    /// The sum of the values.
    pub sum: u64,
    /// How many there are.
    pub n: u64,
}

impl Stats {
    pub(crate) fn note_taken<T>(&mut self, batch: &Batch<T>, now: Time) {
        let at = Reason::ALL.iter().position(|reason| *reason == batch.reason);
        self.left[at.expect("all reasons are listed")] += 1;
        for piece in &batch.pieces {
            self.queue_micros.note(micros(now.since(piece.arrived)));
        }
    }

    pub(crate) fn note_refusal(&mut self, took: Duration) {
        self.refusal_micros.note(micros(took));
    }

    pub(crate) fn note_run(&mut self, turn: &Turned, took: Duration) {
        self.n_batches += 1;
        self.n_rows += turn.n_rows as u64;
        self.n_padding += (turn.n_padded - turn.n_rows) as u64;
        self.batch_rows.note(turn.n_rows as u64);
        self.padded_rows.note(turn.n_padded as u64);
        self.run_micros.note(micros(took));
    }
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn note(&mut self, value: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        self.counts[(bits as usize).min(N - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
        self.n += 1;
    }

    /// The mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// A value that `percent` per cent of all do not exceed, to the next power of two.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.n * percent).div_ceil(100);
        let mut seen = 0;
        for (power, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return 1 << power;
            }
        }
        0
    }
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: [0; N], sum: 0, n: 0 }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
