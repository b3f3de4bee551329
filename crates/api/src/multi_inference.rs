//! `MultiInference`: several classifications and regressions of the same examples. The rules and
//! texts are those of TensorFlow Serving's `multi_inference.cc`.

use std::collections::BTreeSet;
use std::time::Instant;

use lifecycle::{Code, Handle};
use proto::serving::inference_result::Result as Outcome;
use proto::serving::{
    InferenceResult, InferenceTask, MultiInferenceRequest, MultiInferenceResponse,
};
use session::{Servable, Signature};
use tensor::Tensor;

use crate::Models;
use crate::call::{Call, MethodNames, answered};
use crate::examples;
use crate::status::Status;
use crate::{classify, regress};

/// Runs every task of a request on its examples.
pub(crate) async fn multi_inference(
    models: &Models,
    request: MultiInferenceRequest,
    deadline: Option<Instant>,
    names: MethodNames,
) -> Result<MultiInferenceResponse, Status> {
    let first = request.tasks.first().and_then(|task| task.model_spec.clone());
    let call = Call::from_spec(Some(first.unwrap_or_default()), deadline)?;
    let servable = call.servable(models)?;
    let chosen = check(&call.target.model, &request.tasks, &servable, names)?;
    let input = examples::serialized(request.input)?;
    let mut results = Vec::with_capacity(chosen.len());
    for signature in chosen {
        let outcome = run(&servable, signature, &input, deadline).await?;
        let model_spec = answered(&call.target.model, servable.version(), &signature.name);
        results.push(InferenceResult { model_spec: Some(model_spec), result: Some(outcome) });
    }
    Ok(MultiInferenceResponse { results })
}

/// The signature of each task, all checked before anything runs.
fn check<'a>(
    model: &str,
    tasks: &[InferenceTask],
    servable: &'a Handle<Servable>,
    names: MethodNames,
) -> Result<Vec<&'a Signature>, Status> {
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
        let call = Call::from_spec(Some(spec), None)?;
        let name = call.signature_name().to_owned();
        if !seen.insert(name.clone()) {
            return Err(Status::invalid(format!("Duplicate evaluation of signature: {name}")));
        }
        let missing =
            || Status::invalid(format!("Requested signature not found in model graph: {name}"));
        let signature = servable.signature(&name).ok_or_else(missing)??;
        match task.method_name.as_str() {
            classify::METHOD => classify::check(signature, names)?,
            regress::METHOD => regress::check(signature, names)?,
            other => {
                let text = format!("Unsupported signature method_name: {other}");
                return Err(Status::new(Code::Unimplemented, text));
            }
        }
        chosen.push(&**signature);
    }
    Ok(chosen)
}

async fn run(
    servable: &Handle<Servable>,
    signature: &Signature,
    input: &Tensor,
    deadline: Option<Instant>,
) -> Result<Outcome, Status> {
    let n_examples = input.n_elements();
    let all = (0..signature.outputs.len()).collect();
    let outputs = servable.run(signature, vec![input.clone()], all, deadline).await?;
    if signature.outputs.contains_key("outputs") {
        return Ok(Outcome::RegressionResult(regress::result(&outputs[0], n_examples)?));
    }
    let result = classify::result(signature, &outputs, n_examples)?;
    Ok(Outcome::ClassificationResult(result))
}
