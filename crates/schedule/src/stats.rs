//! `Stats`: what a queue has done so far.

use std::time::Duration;

use batch::{Batch, Reason, Time};
use metrics::Counts;

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
    pub task_rows: Counts<15>,
    /// The rows of batches, without padding.
    pub batch_rows: Counts<15>,
    /// The rows of batches, with padding.
    pub padded_rows: Counts<15>,
    /// Microseconds in the queue, of each piece.
    pub queue_micros: Counts<32>,
    /// Microseconds of each run.
    pub run_micros: Counts<32>,
    /// Microseconds from when a task came, decoded and checked, until it was refused.
    pub refusal_micros: Counts<32>,
}

impl Stats {
    pub(crate) fn note_taken<T>(&mut self, batch: &Batch<T>, now: Time) {
        let at = Reason::ALL.iter().position(|reason| *reason == batch.reason);
        self.left[at.expect("all reasons are listed")] += 1;
        for piece in &batch.pieces {
            self.queue_micros.add_time(now.since(piece.arrived));
        }
    }

    pub(crate) fn note_refusal(&mut self, took: Duration) {
        self.refusal_micros.add_time(took);
    }

    pub(crate) fn note_run(&mut self, turn: &Turned, took: Duration) {
        self.n_batches += 1;
        self.n_rows += turn.n_rows as u64;
        self.n_padding += (turn.n_padded - turn.n_rows) as u64;
        self.batch_rows.add(turn.n_rows as u64);
        self.padded_rows.add(turn.n_padded as u64);
        self.run_micros.add_time(took);
    }
}
