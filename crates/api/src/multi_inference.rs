//! `MultiInference`: several classifications and regressions of the same examples. The rules and
//! texts are those of TensorFlow Serving's `multi_inference.cc`.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use lifecycle::Handle;
use proto::serving::inference_result::Result as Outcome;
use proto::serving::{
    InferenceResult, InferenceTask, MultiInferenceRequest, MultiInferenceResponse,
};
use session::{Servable, Signature, Urgency};
use status::{Code, Status, clipped};
use tensor::Tensor;

use crate::call::{Call, MethodNames, answered};
use crate::context::Context;
use crate::examples;
use crate::hints;
use crate::record::{Exchange, Record};
use crate::run::Run;
use crate::stats::Api;
use crate::{classify, regress};

/// Runs every task of a request on its examples, all at once.
pub(crate) async fn multi_inference(
    context: &Context,
    request: MultiInferenceRequest,
    urgency: Urgency,
) -> Result<MultiInferenceResponse, Status> {
    let first = request.tasks.first().and_then(|task| task.model_spec.clone());
    let call = Call::from_spec(Some(first.unwrap_or_default()), urgency)?;
    let servable = call.servable_to_run(context)?;
    let chosen = check(&call.target.model, &request.tasks, &servable, context.method_names)?;
    let logged = context.sampled(&call.target.model).map(|recorder| (recorder, request.clone()));
    let input = examples::serialized_by(&context.codec, request.input).await?;
    let runs = chosen.iter().map(|task| run(context, &servable, task, &input, urgency));
    let outcomes = try_join_all(runs).await?;
    context.stats.examples(&call.target.model, input.n_elements());
    let result = |(task, outcome): (&Task<'_>, Outcome)| InferenceResult {
        model_spec: Some(answered(&call.target.model, servable.version(), &task.signature.name)),
        result: Some(outcome),
    };
    let results = chosen.iter().zip(outcomes).map(result).collect();
    let response = MultiInferenceResponse { results };
    if let Some((recorder, request)) = logged {
        recorder.record(Record {
            model: call.target.model.clone(),
            version: servable.version(),
            signature: call.signature_name().to_owned(),
            exchange: Exchange::MultiInference(request, response.clone()),
        });
    }
    Ok(response)
}

/// A task of a request: the method and the signature that it is run on.
struct Task<'a> {
    kind: Kind,
    signature: &'a Arc<Signature>,
}

#[derive(Clone, Copy)]
enum Kind {
    Classify,
    Regress,
}

/// The signature of each task, all checked before anything runs.
fn check<'a>(
    model: &str,
    tasks: &[InferenceTask],
    servable: &'a Handle<Servable>,
    names: MethodNames,
) -> Result<Vec<Task<'a>>, Status> {
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::with_capacity(tasks.len());
    for task in tasks {
        let spec = task.model_spec.clone().unwrap_or_default();
        if spec.name.is_empty() {
            return Err(Status::invalid("Found ModelSpec with an empty model name."));
        }
        if spec.name != model {
            return Err(Status::invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
            ));
        }
        let call = Call::from_spec(Some(spec), Urgency::default())?;
        let name = call.signature_name();
        if !seen.insert(name.to_owned()) {
            let text = format!("Duplicate evaluation of signature: {}", clipped(name));
            return Err(Status::invalid(text));
        }
        let missing = || {
            let text = format!("Requested signature not found in model graph: {}", clipped(name));
            Status::invalid(text).with_hint(hints::of_signature(servable, name))
        };
        let signature = servable.signature(name).ok_or_else(missing)??;
        let kind = match task.method_name.as_str() {
            classify::METHOD => {
                classify::check(servable, signature, names)?;
                Kind::Classify
            }
            regress::METHOD => {
                regress::check(servable, signature, names)?;
                Kind::Regress
            }
            other => {
                let text = format!("Unsupported signature method_name: {}", clipped(other));
                return Err(Status::new(Code::Unimplemented, text));
            }
        };
        chosen.push(Task { kind, signature });
    }
    Ok(chosen)
}

async fn run(
    context: &Context,
    servable: &Handle<Servable>,
    Task { kind, signature }: &Task<'_>,
    input: &Tensor,
    urgency: Urgency,
) -> Result<Outcome, Status> {
    let n_examples = input.n_elements();
    let outputs = match kind {
        Kind::Classify => classify::outputs(signature),
        Kind::Regress => vec![0],
    };
    let run = Run { servable, signature, inputs: vec![input.clone()], outputs, urgency };
    let outputs = run.outputs(context, Api::MultiInference).await?;
    let n_bytes = examples::result_bytes(&outputs);
    let _room = context.budget.charged(n_bytes)?;
    let (kind, signature) = (*kind, Arc::clone(signature));
    let outcome = move || match kind {
        Kind::Classify => {
            classify::result(&signature, &outputs, n_examples).map(Outcome::ClassificationResult)
        }
        Kind::Regress => regress::result(&outputs, n_examples).map(Outcome::RegressionResult),
    };
    context.codec.run(n_bytes, outcome).await?
}
