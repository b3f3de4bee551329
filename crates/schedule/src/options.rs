//! The settings of lanes and queues, and what a run needs.

use std::time::Duration;

use crate::agenda::Admission;

/// The settings of a device's lanes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many batches run at once.
    pub n_lanes: usize,
    /// What is expected to run for no longer runs on the caller's thread: about what it takes to
    /// wake another.
    pub inline_max: Duration,
    /// The longest that a batch may run; `None` for as long as it takes.
    pub run_max: Option<Duration>,
}

/// How a queue of a share is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// How it makes batches.
    pub batch: batch::Options,
    /// Which tasks it takes.
    pub admission: Admission,
}

/// How many bytes a run needs: of the device, and of the host where that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// The workspace.
    pub work_bytes: u64,
    /// Inputs, results, and what else is outside it.
    pub open_bytes: u64,
    /// The workspace on the host.
    pub host_work_bytes: u64,
    /// What is outside it there.
    pub host_open_bytes: u64,
}
