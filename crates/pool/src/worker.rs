//! The loop of a thread of the pool between jobs.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::gate::Gate;

/// Starts worker `number`; `None` if the system has no thread for it.
pub(crate) fn start(gate: &Arc<Gate>, number: usize) -> Option<JoinHandle<()>> {
    let gate = Arc::clone(gate);
    Builder::new().name(format!("compute-{number}")).spawn(move || serve(&gate)).ok()
}

/// Helps with one job after the other until the pool ends.
fn serve(gate: &Gate) {
    let mut last = 0;
    while let Some(round) = gate.wait_for_job(last) {
        gate.help(round);
        last = round;
    }
}
