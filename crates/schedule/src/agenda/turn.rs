//! `Turn`: a batch on its way through a lane.

use batch::{Batch, Time};

use super::QueueId;

/// A batch that was given to a lane.
#[derive(Debug)]
pub struct Turn<T> {
    /// The queue it came from.
    pub queue: QueueId,
    /// The lane it runs on.
    pub lane: usize,
    /// The batch to run.
    pub batch: Batch<T>,
    /// The time at which the batch was taken.
    pub taken: Time,
    /// Set when it is not known yet how many bytes such a batch needs.
    pub is_news: bool,
    pub(super) number: u64,
}

/// The report of a batch that has run.
#[derive(Debug, Clone)]
pub struct Turned {
    pub(crate) queue: QueueId,
    pub(crate) lane: usize,
    pub(crate) n_rows: usize,
    pub(crate) n_padded: usize,
    pub(crate) taken: Time,
    /// Set when the batch was computed: a failure says nothing of how long a run takes.
    pub has_run: bool,
    pub(super) number: u64,
}

impl Turned {
    /// The queue it came from.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// The lane it ran on.
    pub fn lane(&self) -> usize {
        self.lane
    }
}

impl<T> Turn<T> {
    /// The report to give when the batch has run.
    pub fn turned(&self) -> Turned {
        Turned {
            queue: self.queue,
            lane: self.lane,
            n_rows: self.batch.n_rows,
            n_padded: self.batch.n_padded,
            taken: self.taken,
            has_run: true,
            number: self.number,
        }
    }
}

/// The lane of a run that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The run had its lane, which is free now.
    OnItsLane,
    /// The run had been detached: its lane was given to others long ago.
    Detached,
}
