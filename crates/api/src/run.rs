//! Runs a signature for a request: never after its deadline, and timed.

use std::time::Instant;

use lifecycle::Handle;
use session::{Servable, Signature, Urgency};
use status::{Code, Status};
use tensor::Tensor;

use crate::context::Context;
use crate::stats::{Api, Ran};

/// One run of a signature.
pub(crate) struct Run<'a> {
    pub(crate) servable: &'a Handle<Servable>,
    pub(crate) signature: &'a Signature,
    /// One tensor for each input of the signature.
    pub(crate) inputs: Vec<Tensor>,
    /// The places of the outputs that are wanted.
    pub(crate) outputs: Vec<usize>,
    pub(crate) urgency: Urgency,
}

impl Run<'_> {
    /// Runs, and gives the outputs in the order they were asked for.
    pub(crate) async fn outputs(self, context: &Context, api: Api) -> Result<Vec<Tensor>, Status> {
        let start = Instant::now();
        let (servable, signature) = (self.servable, self.signature);
        let ran = Ran {
            model: &servable.id().model,
            version: servable.version(),
            signature: &signature.name,
            api,
        };
        let outputs = self.run(start).await;
        let took = outputs.as_ref().map(|_| start.elapsed()).map_err(|status| status.code);
        context.stats.ran(&ran, took);
        outputs
    }

    async fn run(self, start: Instant) -> Result<Vec<Tensor>, Status> {
        let Self { servable, signature, inputs, outputs, urgency } = self;
        if urgency.deadline.is_some_and(|deadline| deadline <= start) {
            return Err(too_late());
        }
        let run = servable.run(signature, inputs, outputs, urgency);
        Ok(match urgency.deadline {
            None => run.await?,
            Some(deadline) => {
                // Dropping the run tells the engine that nobody waits any more.
                let run = tokio::time::timeout_at(deadline.into(), run);
                run.await.map_err(|_| too_late())??
            }
        })
    }
}

fn too_late() -> Status {
    Status::new(Code::DeadlineExceeded, "the deadline has passed")
}
