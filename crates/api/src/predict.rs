//! `Predict`: runs one signature. The rules and texts are those of TensorFlow Serving's
//! `predict_util.cc`.

use std::collections::{BTreeMap, BTreeSet};

use lifecycle::{Code, Handle};
use session::{Servable, Signature, Urgency};
use tensor::Tensor;

use crate::call::{Call, MethodNames};
use crate::context::Context;
use crate::record::{Exchange, Record};
use crate::run::Run;
use crate::stats::Api;
use crate::status::Status;
use crate::{classify, regress};

const PREDICT: &str = "tensorflow/serving/predict";

/// The most output filters that a request may have.
const FILTERS_MAX: usize = 10_000;

/// The inputs of a run, in the signature's order, and the places of the outputs asked for.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// One tensor for each input of the signature.
    pub(crate) tensors: Vec<Tensor>,
    /// Which outputs are wanted.
    pub(crate) outputs: Vec<usize>,
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The version that answered.
    pub(crate) version: i64,
    /// The signature that was run.
    pub(crate) signature: String,
    /// The outputs by their aliases.
    pub(crate) outputs: Vec<(String, Tensor)>,
}

/// Runs one signature of one servable. `decode` reads the inputs once the signature is known.
pub(crate) async fn predict(
    context: &Context,
    call: &Call,
    decode: impl FnOnce(&Signature) -> Result<Inputs, Status>,
) -> Result<Answer, Status> {
    let servable = call.servable_to_run(&context.models)?;
    let name = call.signature_name();
    let signature = servable.signature(name).ok_or_else(|| {
        // FAILED_PRECONDITION as in `predict_util.cc`.
        let text = format!("Serving signature key \"{name}\" not found.");
        Status::new(Code::FailedPrecondition, text)
    })??;
    context.method_names.check_predict(signature)?;
    let inputs = decode(signature)?;
    run(context, &servable, signature, inputs, call.urgency).await
}

/// Runs a signature on inputs that were decoded.
pub(crate) async fn run(
    context: &Context,
    servable: &Handle<Servable>,
    signature: &Signature,
    Inputs { tensors, outputs }: Inputs,
    urgency: Urgency,
) -> Result<Answer, Status> {
    let aliases: Vec<&String> = signature.outputs.keys().collect();
    let wanted: Vec<String> = outputs.iter().map(|number| aliases[*number].clone()).collect();
    let model = &servable.id().model;
    // Clones of tensors share their memory.
    let sampled = context.sampled(model).map(|recorder| (recorder, tensors.clone()));
    let run = Run { servable, signature, inputs: tensors, outputs, urgency };
    let values = run.outputs(context, Api::Predict).await?;
    let outputs: Vec<(String, Tensor)> = wanted.into_iter().zip(values).collect();
    if let Some((recorder, tensors)) = sampled {
        let inputs = signature.inputs.keys().cloned().zip(tensors).collect();
        recorder.record(Record {
            model: model.to_string(),
            version: servable.version(),
            signature: signature.name.clone(),
            exchange: Exchange::Predict { inputs, outputs: outputs.clone() },
        });
    }
    Ok(Answer { version: servable.version(), signature: signature.name.clone(), outputs })
}

impl MethodNames {
    /// Refuses a signature whose method is none of the three that can be predicted.
    pub(crate) fn check_predict(self, signature: &Signature) -> Result<(), Status> {
        const METHODS: [&str; 3] = [PREDICT, classify::METHOD, regress::METHOD];
        if self == Self::Unchecked || METHODS.contains(&signature.method.as_str()) {
            return Ok(());
        }
        let text = format!(
            "Expected prediction signature method_name to be one of {{{}}}. Was: {}",
            METHODS.join(", "),
            signature.method
        );
        Err(Status::new(Code::Internal, text))
    }
}

/// The inputs of a request, in the signature's order. `read` makes a tensor of what the request
/// gives for an alias.
pub(crate) fn inputs<T>(
    signature: &Signature,
    mut given: BTreeMap<String, T>,
    filter: &[String],
    read: impl Fn(&str, T) -> Result<Tensor, Status>,
) -> Result<Inputs, Status> {
    check_count(signature, &given)?;
    let mut tensors = Vec::with_capacity(signature.inputs.len());
    for (alias, endpoint) in &signature.inputs {
        if let Some(value) = given.remove(alias) {
            tensors.push(read(alias, value)?);
        } else if let Some(default) = signature.defaults.get(alias) {
            tensors.push(default.clone());
        } else {
            return Err(Status::invalid(format!(
                "Signature input alias: {alias}(feed name: {}) not found in request and no \
                 default value provided. Inputs expected to be in the request {{{}}}, or default \
                 input alias set: {}",
                endpoint.tensor,
                joined(signature.inputs.keys()),
                joined(signature.defaults.keys()),
            )));
        }
    }
    if let Some(extra) = given.keys().next() {
        return Err(Status::invalid(format!(
            "Inputs contains invalid name. Used request inputs: {}, request input: {extra}",
            joined(signature.inputs.keys()),
        )));
    }
    Ok(Inputs { tensors, outputs: outputs(signature, filter)? })
}

/// Fails if there are too many inputs, or too few and nothing could stand in for them.
fn check_count<T>(signature: &Signature, given: &BTreeMap<String, T>) -> Result<(), Status> {
    let (n_given, n_wanted) = (given.len(), signature.inputs.len());
    let too_few = n_given < n_wanted && signature.defaults.is_empty();
    if n_given <= n_wanted && !too_few {
        return Ok(());
    }
    let sent: BTreeSet<&String> = given.keys().collect();
    let wanted: BTreeSet<&String> = signature.inputs.keys().collect();
    Err(Status::invalid(format!(
        "input size does not match signature: {n_given}!={n_wanted} len({{{}}}) != len({{{}}}). \
         Sent extra: {{{}}}. Missing but required: {{{}}}.",
        joined(sent.iter().copied()),
        joined(wanted.iter().copied()),
        joined(sent.difference(&wanted).copied()),
        joined(wanted.difference(&sent).copied()),
    )))
}

/// The places of the outputs that a filter names; all of them without one.
pub(crate) fn outputs(signature: &Signature, filter: &[String]) -> Result<Vec<usize>, Status> {
    if filter.is_empty() {
        return Ok((0..signature.outputs.len()).collect());
    }
    if filter.len() > FILTERS_MAX {
        let text = format!("{} output filters, more than {FILTERS_MAX}", filter.len());
        return Err(Status::invalid(text));
    }
    let mut places = Vec::with_capacity(filter.len());
    let mut seen = BTreeSet::new();
    for alias in filter {
        let place = signature.output_number(alias).ok_or_else(|| {
            Status::invalid(format!(
                "output tensor alias not found in signature: {alias} Outputs expected to be in \
                 the set {{{}}}.",
                joined(signature.outputs.keys()),
            ))
        })?;
        if !seen.insert(place) {
            return Err(Status::invalid(format!("duplicate output tensor alias: {alias}")));
        }
        places.push(place);
    }
    Ok(places)
}

/// Names with commas between them, as TensorFlow Serving joins them.
pub(crate) fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(",")
}
