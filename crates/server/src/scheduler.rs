//! The figures of queues and lanes, for people and programs: `GET /v1/scheduler` and metrics.

mod page;

use std::sync::Arc;

use schedule::Lanes;

use crate::batching::Versions;
use crate::devices::Devices;

pub(crate) use self::page::page;

/// The part that knows the queues and the lanes.
#[derive(Clone)]
pub(crate) struct Scheduler {
    pub(crate) versions: Arc<Versions>,
    pub(crate) devices: Arc<Devices>,
}

impl Scheduler {
    /// The lanes of each device, by its name.
    pub(crate) fn lanes(&self) -> Vec<(String, Arc<Lanes>)> {
        let all = self.devices.all();
        let name = |one: &crate::devices::Logical| one.space.name().to_owned();
        all.iter().map(|one| (name(one), Arc::clone(&one.executor.lanes))).collect()
    }
}
