//! `TensorFlowEngine`: runs the signatures of one servable in a worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use session::{Engine, Error, Reply, Run};

use crate::worker::{Sent, Worker};

/// A model in a worker. Dropping it unloads the model, and waits for the end of a worker that it
/// was the last model of.
pub(crate) struct TensorFlowEngine {
    pub(crate) worker: Arc<Worker>,
    pub(crate) seat: u64,
    /// The places of the signatures in the worker, by name.
    pub(crate) signatures: BTreeMap<String, u32>,
}

impl Engine for TensorFlowEngine {
    fn start(&self, run: Run, reply: Reply) {
        let Some(signature) = self.signatures.get(&run.signature).copied() else {
            let text = format!("no signature is called {}", run.signature);
            reply(Err(Error::NotFound(text)));
            return;
        };
        if run.is_moot() {
            reply(Err(Error::Cancelled("nobody waits for the answer".to_owned())));
            return;
        }
        self.worker.run(Sent { run, reply, seat: self.seat, signature });
    }

    fn name(&self) -> &'static str {
        "tensorflow"
    }
}

impl Drop for TensorFlowEngine {
    fn drop(&mut self) {
        self.worker.leave(self.seat);
    }
}
