//! `Waiting`: a queue on an agenda, and what is known of its runs.

use std::time::Duration;

use batch::{Class, Queue, Ready, Time};

use crate::agenda::{Agenda, ModelId, QueueId};
use crate::costs::Costs;
use crate::needs::Needs;
use crate::stats::Stats;

/// A queue and what is known of its runs.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) model: ModelId,
    pub(super) queue: Queue<T>,
    pub(super) costs: Costs,
    pub(super) stats: Stats,
    /// The bytes that its batches need.
    pub(super) needs: Needs,
    /// The most rows that fit in the memory there was last.
    pub(super) rows_fit: Option<usize>,
    pub(super) admission: Admission,
    pub(super) n_running: usize,
    /// Set when the queue goes as soon as its runs have ended.
    pub(super) is_removed: bool,
}

/// The rule by which a queue takes tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All that there is room for, as TensorFlow Serving does.
    Room,
    /// Only those that can be answered in time.
    InTime,
}

/// A copy of what an agenda knows of a queue.
#[derive(Debug, Clone)]
pub struct QueueSnapshot {
    /// Its model.
    pub model: ModelId,
    /// The model's weight against others.
    pub weight: u32,
    /// The waiting tasks.
    pub n_tasks: usize,
    /// Their rows.
    pub n_rows: usize,
    /// For how long the oldest has waited.
    pub age: Duration,
    /// The settings.
    pub options: batch::Options,
    /// The counters.
    pub stats: Stats,
    /// The expected run time of a batch of 1 row.
    pub run_one: Option<Duration>,
    /// The expected run time of a full batch.
    pub run_full: Option<Duration>,
    /// The most rows of a batch that fit in the memory that was free last, if that is known.
    pub rows_fit: Option<usize>,
}

impl<T> Agenda<T> {
    /// The most bytes that the waiting tasks of a queue need as one batch, if it has more rows than
    /// any batch before it and has to wait.
    pub fn outgrows(&self, queue: QueueId, class: &Class, now: Time) -> Option<u64> {
        let waiting = self.queues[queue.number()].as_ref()?;
        if self.has_free_lane() && matches!(waiting.ready(now), Ready::Now(_)) {
            return None;
        }
        let options = waiting.queue.options();
        let n_rows = waiting.queue.n_rows().min(options.batch_rows_max);
        waiting.needs.beyond(class, options.padded(n_rows))
    }
}

impl<T> Waiting<T> {
    pub(super) fn ready(&self, now: Time) -> Ready {
        if self.queue.n_tasks() == 0 {
            return Ready::Never; // Most queues, most of the time.
        }
        let rows = self.queue.n_rows().min(self.queue.options().batch_rows_max);
        self.queue.ready(now, self.run(rows))
    }

    /// The expected run time of a batch; zero as long as none has run.
    pub(super) fn run(&self, n_rows: usize) -> Duration {
        self.costs.predict(self.queue.options().padded(n_rows)).unwrap_or_default()
    }

    /// The rows that the next batch is to have, by the gain of larger ones. A queue with certain
    /// batch sizes gets those.
    pub(super) fn rows_worth(&mut self) -> usize {
        let rows_max = self.queue.options().batch_rows_max;
        if !self.is_free() || rows_max == 1 {
            return usize::MAX;
        }
        self.costs.choose(self.queue.n_rows(), rows_max)
    }

    /// Returns whether batches may be of any size.
    fn is_free(&self) -> bool {
        self.admission == Admission::InTime && self.queue.options().allowed_sizes.is_empty()
    }

    /// The expected run time of the waiting tasks, on one lane.
    pub(super) fn backlog(&self) -> Duration {
        let (ahead, ride) = self.ahead(0);
        ahead + ride
    }

    /// The run time of the batches that leave before the one that takes a new task of `n_rows`, and
    /// of that one. Behind full batches there is so much to do that it will be full too.
    pub(super) fn ahead(&self, n_rows: usize) -> (Duration, Duration) {
        let options = self.queue.options();
        if options.batch_rows_max == 1 {
            let n_tasks = u32::try_from(self.queue.n_tasks()).unwrap_or(u32::MAX);
            let ride = if n_rows == 0 { Duration::ZERO } else { self.run(n_rows) };
            return (self.run(1).saturating_mul(n_tasks), ride);
        }
        let rows = self.queue.n_rows();
        let usual = match self.is_free() {
            true => self.costs.usual(rows, options.batch_rows_max),
            false => options.batch_rows_max,
        };
        let max = usual.min(self.rows_fit.unwrap_or(usize::MAX)).max(1);
        let full = u32::try_from(rows / max).unwrap_or(u32::MAX);
        let ride = match rows % max + n_rows {
            0 => Duration::ZERO,
            _ if full > 0 && n_rows > 0 => self.run(max.max(n_rows)),
            rows => self.run(rows),
        };
        (self.run(max).saturating_mul(full), ride)
    }
}
