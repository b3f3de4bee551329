//! What is known of queues and lanes, for people and programs: `GET /v1/scheduler` and metrics.

mod metrics;
mod page;

use std::sync::Arc;

use schedule::Lanes;

use crate::batching::Versions;

pub(crate) use self::metrics::metrics;
pub(crate) use self::page::page;

/// Whoever knows the queues and the lanes.
#[derive(Clone)]
pub(crate) struct Scheduler {
    pub(crate) versions: Arc<Versions>,
    /// The lanes of each device, by its name.
    pub(crate) lanes: Vec<(String, Arc<Lanes>)>,
}
