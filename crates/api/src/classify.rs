//! `Classify`: labels with scores for each example. The rules and texts are those of TensorFlow
//! Serving's `classifier.cc`.

use std::sync::Arc;

use bytes::Bytes;
use proto::serving::{
    Class, ClassificationRequest, ClassificationResponse, ClassificationResult, Classifications,
    Input,
};
use session::{Servable, Signature};
use status::Status;
use tensor::{DType, Tensor};

use crate::call::{Call, MethodNames, answered};
use crate::context::Context;
use crate::examples;
use crate::record::{Exchange, Record};
use crate::run::Run;
use crate::stats::Api;

pub(crate) const METHOD: &str = "tensorflow/serving/classify";
const CLASSES: &str = "classes";
const SCORES: &str = "scores";

/// Runs a classification signature on examples.
pub(crate) async fn classify(
    context: &Context,
    call: &Call,
    input: Option<Input>,
) -> Result<ClassificationResponse, Status> {
    let servable = call.servable_to_run(context)?;
    let signature = examples::signature(&servable, call.signature_name())?;
    check(&servable, signature, context.method_names)?;
    let request = context.sampled(&call.target.model).map(|recorder| (recorder, input.clone()));
    let input = examples::serialized_by(&context.codec, input).await?;
    let n_examples = input.n_elements();
    let inputs = vec![input];
    let outputs = outputs(signature);
    let run = Run { servable: &servable, signature, inputs, outputs, urgency: call.urgency };
    let outputs = run.outputs(context, Api::Classify).await?;
    let n_bytes = examples::result_bytes(&outputs);
    let _room = context.budget.charged(n_bytes)?;
    let read = {
        let signature = Arc::clone(signature);
        move || result(&signature, &outputs, n_examples)
    };
    let result = context.codec.run(n_bytes, read).await??;
    let model_spec = answered(&call.target.model, servable.version(), &signature.name);
    let response = ClassificationResponse { model_spec: Some(model_spec), result: Some(result) };
    if let Some((recorder, input)) = request {
        let request = ClassificationRequest { model_spec: response.model_spec.clone(), input };
        recorder.record(Record {
            model: call.target.model.clone(),
            version: servable.version(),
            signature: signature.name.clone(),
            exchange: Exchange::Classify(request, response.clone()),
        });
    }
    Ok(response)
}

/// Fails if a signature is not one input `inputs` → `classes`, `scores` or both.
pub(crate) fn check(
    servable: &Servable,
    signature: &Signature,
    names: MethodNames,
) -> Result<(), Status> {
    if names == MethodNames::Checked && signature.method != METHOD {
        return Err(Status::invalid(format!(
            "Expected classification signature method_name to be {METHOD}. Was: {}",
            signature.method
        )));
    }
    if signature.inputs.len() != 1 {
        return Err(Status::invalid("Expected one input Tensor."));
    }
    let n_outputs = signature.outputs.len();
    if n_outputs != 1 && n_outputs != 2 {
        let text = format!("Expected one or two output Tensors, found {n_outputs}");
        return Err(Status::invalid(text));
    }
    if !signature.inputs.contains_key("inputs") {
        let text = format!(
            "No classification inputs found in SignatureDef: {}",
            examples::described(servable, signature)
        );
        return Err(Status::invalid(text));
    }
    let known = [CLASSES, SCORES].iter().filter(|name| signature.outputs.contains_key(**name));
    if known.count() == 0 {
        return Err(Status::invalid(format!(
            "Expected classification signature outputs to contain at least one of \"classes\" or \
             \"scores\". Signature was: {}",
            examples::described(servable, signature)
        )));
    }
    Ok(())
}

/// The places of the outputs that count; others are not computed.
pub(crate) fn outputs(signature: &Signature) -> Vec<usize> {
    [CLASSES, SCORES].iter().filter_map(|alias| signature.output_number(alias)).collect()
}

/// The classifications in the output tensors of a signature, which are those that count.
pub(crate) fn result(
    signature: &Signature,
    outputs: &[Tensor],
    n_examples: usize,
) -> Result<ClassificationResult, Status> {
    let has = |alias| signature.outputs.contains_key(alias);
    let mut outputs = outputs.iter();
    let classes = has(CLASSES).then(|| outputs.next()).flatten();
    let scores = has(SCORES).then(|| outputs.next()).flatten();
    if let Some(classes) = classes {
        check_output(classes, (CLASSES, DType::String), n_examples)?;
    }
    if let Some(scores) = scores {
        check_output(scores, (SCORES, DType::F32), n_examples)?;
    }
    if let (Some(classes), Some(scores)) = (classes, scores)
        && classes.shape()[1] != scores.shape()[1]
    {
        return Err(Status::invalid(format!(
            "Tensors class and score should match in dim_size(1). Got {} vs. {}",
            classes.shape()[1],
            scores.shape()[1]
        )));
    }
    let n_classes = classes.or(scores).map_or(0, |tensor| tensor.shape()[1]);
    let class = |at: usize| Class {
        label: classes
            .map_or_else(Bytes::new, |classes| Bytes::copy_from_slice(classes.strings().get(at))),
        score: scores.map_or(0.0, |scores| scores.as_slice::<f32>()[at]),
    };
    let row = |row: usize| Classifications {
        classes: (0..n_classes).map(|column| class(row * n_classes + column)).collect(),
    };
    Ok(ClassificationResult { classifications: (0..n_examples).map(row).collect() })
}

fn check_output(
    tensor: &Tensor,
    (name, dtype): (&str, DType),
    n_examples: usize,
) -> Result<(), Status> {
    let shape = tensor.shape();
    if shape.rank() != 2 {
        return Err(Status::invalid(format!(
            "Expected Tensor shape: [batch_size num_classes] but got {shape}"
        )));
    }
    if tensor.dtype() != dtype {
        let (expected, got) = (examples::enum_name(dtype), examples::enum_name(tensor.dtype()));
        let text = format!("Expected {name} Tensor of {expected}. Got: {got}");
        return Err(Status::invalid(text));
    }
    if shape[0] != n_examples {
        return Err(Status::invalid(format!(
            "Expected {name} output batch size of {n_examples}. Got: {}",
            shape[0]
        )));
    }
    Ok(())
}
