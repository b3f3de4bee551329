//! The settings of lanes and queues, and what a run needs.

use std::time::Duration;

use crate::agenda::Admission;

/// The settings of a device's lanes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of batches that run at once.
    pub n_lanes: usize,
    /// The longest expected run that takes the caller's thread: about the time it takes to wake
    /// another.
    pub inline_max: Duration,
    /// The longest that a batch may run; `None` for as long as it takes.
    pub run_max: Option<Duration>,
}

/// The settings of a queue of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// The settings by which the queue makes batches.
    pub batch: batch::Options,
    /// The rule by which the queue takes tasks.
    pub admission: Admission,
}

/// The bytes that a run needs: of the device, and of the host where that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// The workspace.
    pub work_bytes: u64,
    /// Inputs, results, and what else is outside it.
    pub open_bytes: u64,
    /// The workspace on the host.
    pub host_work_bytes: u64,
    /// The bytes outside the workspace on the host.
    pub host_open_bytes: u64,
}
