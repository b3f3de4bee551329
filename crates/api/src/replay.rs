//! Runs logged requests again, on a version that is not served yet: how a version is warmed up. The
//! rules are those of TensorFlow Serving's `saved_model_warmup.cc`.

use proto::serving::prediction_log::LogType;
use proto::serving::{InferenceTask, Input, ModelSpec, PredictRequest, PredictionLog};
use session::{Servable, Signature, Urgency};
use status::{Code, Status};

use crate::call::MethodNames;
use crate::{classify, examples, predict, regress};

/// The most bytes that an input tensor may unfold to.
const TENSOR_BYTES_MAX: usize = i32::MAX as usize;

/// The outcome of replaying a logged request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// It was run, and its answer thrown away.
    Run,
    /// It holds no request.
    Empty,
}

/// Runs a logged request on a servable. The model and version that it names do not count, its
/// signature does.
///
/// # Errors
/// As the request itself would fail; `UNIMPLEMENTED` for the kinds that TensorFlow Serving does not
/// replay.
pub async fn replay(servable: &Servable, log: &PredictionLog) -> Result<Replayed, Status> {
    match &log.log_type {
        None => return Ok(Replayed::Empty),
        Some(LogType::PredictLog(log)) => {
            let request = log.request.clone().unwrap_or_default();
            self::predict(servable, request).await?;
        }
        Some(LogType::ClassifyLog(log)) => {
            let request = log.request.clone().unwrap_or_default();
            let signature = signature(servable, request.model_spec.as_ref())?;
            classify::check(servable, signature, MethodNames::Unchecked)?;
            run_examples(servable, &[signature], request.input).await?;
        }
        Some(LogType::RegressLog(log)) => {
            let request = log.request.clone().unwrap_or_default();
            let signature = signature(servable, request.model_spec.as_ref())?;
            regress::check(servable, signature, MethodNames::Unchecked)?;
            run_examples(servable, &[signature], request.input).await?;
        }
        Some(LogType::MultiInferenceLog(log)) => {
            let request = log.request.clone().unwrap_or_default();
            let find = |task: &InferenceTask| signature(servable, task.model_spec.as_ref());
            let signatures: Result<Vec<&Signature>, Status> =
                request.tasks.iter().map(find).collect();
            run_examples(servable, &signatures?, request.input).await?;
        }
        Some(LogType::SessionRunLog(_)) => return Err(unsupported(5)),
        Some(LogType::PredictStreamedLog(_)) => return Err(unsupported(7)),
    }
    Ok(Replayed::Run)
}

fn unsupported(number: u32) -> Status {
    Status::new(Code::Unimplemented, format!("Unsupported log_type for warmup: {number}"))
}

async fn predict(servable: &Servable, request: PredictRequest) -> Result<(), Status> {
    let PredictRequest { model_spec, inputs, output_filter, .. } = request;
    let name = model_spec.unwrap_or_default().signature_name;
    let signature = servable.signature(&name).ok_or_else(|| {
        let text = format!("Serving signature key \"{name}\" not found.");
        Status::new(Code::FailedPrecondition, text)
    })??;
    let inputs = predict::inputs(signature, inputs, &output_filter, TENSOR_BYTES_MAX)?;
    servable.run(signature, inputs.tensors, inputs.outputs, Urgency::default()).await?;
    Ok(())
}

fn signature<'a>(
    servable: &'a Servable,
    spec: Option<&ModelSpec>,
) -> Result<&'a Signature, Status> {
    let name = spec.map_or("", |spec| &spec.signature_name);
    let name = if name.is_empty() { session::DEFAULT_SIGNATURE } else { name };
    Ok(&**examples::signature(servable, name)?)
}

async fn run_examples(
    servable: &Servable,
    signatures: &[&Signature],
    input: Option<Input>,
) -> Result<(), Status> {
    let input = examples::serialized(input)?;
    for signature in signatures {
        let all = (0..signature.outputs.len()).collect();
        servable.run(signature, vec![input.clone()], all, Urgency::default()).await?;
    }
    Ok(())
}
