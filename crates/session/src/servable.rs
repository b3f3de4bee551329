//! `Servable`: one loaded version.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::tensorflow::SignatureDef;
use status::{Result, Status};
use tensor::Tensor;
use tokio::sync::oneshot;

use crate::engine::{Engine, Run, Urgency};
use crate::signature::{DEFAULT_SIGNATURE, Signature};

/// One loaded version of a model, ready to run.
pub struct Servable {
    /// The signatures that can be run, by name.
    pub signatures: BTreeMap<String, Arc<Signature>>,
    /// All signatures as they stand in the SavedModel, for metadata.
    pub signature_defs: BTreeMap<String, SignatureDef>,
    /// Signatures that cannot be run, and why.
    pub refused: BTreeMap<String, Status>,
    /// The memory of its weights.
    pub weights: Weights,
    /// The engine that runs the servable.
    pub engine: Arc<dyn Engine>,
}

/// The memory that the weights of a servable take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weights {
    /// The number of variables that were loaded.
    pub n_variables: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Servable {
    /// The signature called `name`, or the default one if the name is empty. `None` if there is
    /// none of that name.
    pub fn signature(&self, name: &str) -> Option<Result<&Arc<Signature>>> {
        let name = if name.is_empty() { DEFAULT_SIGNATURE } else { name };
        if let Some(signature) = self.signatures.get(name) {
            return Some(Ok(signature));
        }
        self.refused.get(name).map(|error| Err(error.clone()))
    }

    /// Runs a signature. The inputs are all of the signature's, in its order; the outputs are those
    /// asked for by their places. If the caller stops waiting, the run is told.
    pub async fn run(
        &self,
        signature: &Signature,
        inputs: Vec<Tensor>,
        outputs: Vec<usize>,
        urgency: Urgency,
    ) -> Result<Vec<Tensor>> {
        let (send, receive) = oneshot::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop(Arc::clone(&is_cancelled));
        let signature = signature.name.clone();
        let Urgency { deadline, level } = urgency;
        let run = Run { signature, inputs, outputs, deadline, level, is_cancelled };
        // If nobody waits any more, the answer is of no use to anybody.
        let reply = Box::new(move |answer| drop(send.send(answer)));
        self.engine.start(run, reply);
        let lost = || Status::internal("the run was lost: a kernel panicked");
        receive.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl fmt::Debug for Servable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.signatures.keys().collect();
        write!(f, "Servable({names:?} on {})", self.engine.name())
    }
}

/// Tells a run that nobody waits any more when the waiting ends, however it ends.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
