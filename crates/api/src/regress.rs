//! `Regress`: a number for each example. The rules and texts are those of TensorFlow Serving's
//! `regressor.cc`.

use proto::serving::{Input, Regression, RegressionRequest, RegressionResponse, RegressionResult};
use session::{Servable, Signature};
use status::Status;
use tensor::{DType, Tensor};

use crate::call::{Call, MethodNames, answered};
use crate::context::Context;
use crate::examples;
use crate::record::{Exchange, Record};
use crate::run::Run;
use crate::stats::Api;

pub(crate) const METHOD: &str = "tensorflow/serving/regress";

/// Runs a regression signature on examples.
pub(crate) async fn regress(
    context: &Context,
    call: &Call,
    input: Option<Input>,
) -> Result<RegressionResponse, Status> {
    let servable = call.servable_to_run(context)?;
    let signature = examples::signature(&servable, call.signature_name())?;
    check(&servable, signature, context.method_names)?;
    let request = context.sampled(&call.target.model).map(|recorder| (recorder, input.clone()));
    let input = examples::serialized_by(&context.codec, input).await?;
    let n_examples = input.n_elements();
    let (inputs, outputs) = (vec![input], vec![0]);
    let run = Run { servable: &servable, signature, inputs, outputs, urgency: call.urgency };
    let outputs = run.outputs(context, Api::Regress).await?;
    let n_bytes = examples::result_bytes(&outputs);
    let _room = context.budget.charged(n_bytes)?;
    let result = context.codec.run(n_bytes, move || result(&outputs, n_examples)).await??;
    let model_spec = answered(&call.target.model, servable.version(), &signature.name);
    let response = RegressionResponse { model_spec: Some(model_spec), result: Some(result) };
    if let Some((recorder, input)) = request {
        let request = RegressionRequest { model_spec: response.model_spec.clone(), input };
        recorder.record(Record {
            model: call.target.model.clone(),
            version: servable.version(),
            signature: signature.name.clone(),
            exchange: Exchange::Regress(request, response.clone()),
        });
    }
    Ok(response)
}

/// Fails if a signature is not one input `inputs` → one output `outputs`.
pub(crate) fn check(
    servable: &Servable,
    signature: &Signature,
    names: MethodNames,
) -> Result<(), Status> {
    if names == MethodNames::Checked && signature.method != METHOD {
        return Err(Status::invalid(format!(
            "Expected regression signature method_name to be {METHOD}. Was: {}",
            signature.method
        )));
    }
    if signature.inputs.len() != 1 {
        return Err(Status::invalid("Expected one input Tensor."));
    }
    if signature.outputs.len() != 1 {
        return Err(Status::invalid("Expected one output Tensor."));
    }
    let what = |what: &str| {
        let described = examples::described(servable, signature);
        Status::invalid(format!("No regression {what} found in SignatureDef: {described}"))
    };
    if !signature.inputs.contains_key("inputs") {
        return Err(what("inputs"));
    }
    if !signature.outputs.contains_key("outputs") {
        return Err(what("outputs"));
    }
    Ok(())
}

/// The regressions in the only output.
pub(crate) fn result(outputs: &[Tensor], n_examples: usize) -> Result<RegressionResult, Status> {
    let Some(output) = outputs.first() else {
        let text = "Expected output_tensors and output_tensor_names to have the same size.";
        return Err(Status::invalid(text));
    };
    let shape = output.shape();
    if !matches!(shape.dims(), [_] | [_, 1]) {
        return Err(Status::invalid(format!(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got \
             {shape}"
        )));
    }
    if shape[0] != n_examples {
        return Err(Status::invalid(format!(
            "Input batch size did not match output batch size: {n_examples} vs. {}",
            shape[0]
        )));
    }
    if output.dtype() != DType::F32 {
        // Two blanks, as upstream.
        let got = examples::enum_name(output.dtype());
        return Err(Status::invalid(format!("Expected output Tensor of DT_FLOAT.  Got: {got}")));
    }
    let regressions = output.as_slice::<f32>().iter().map(|value| Regression { value: *value });
    Ok(RegressionResult { regressions: regressions.collect() })
}
