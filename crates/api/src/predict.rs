//! `Predict`: runs one signature. The rules and texts are those of TensorFlow Serving's
//! `predict_util.cc`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lifecycle::Handle;
use proto::tensorflow::TensorProto;
use session::{Endpoint, Servable, Signature, Urgency};
use status::{Code, Status, clipped};
use tensor::{DType, Tensor, proto_dtype};

use crate::call::{Call, MethodNames};
use crate::context::Context;
use crate::hints;
use crate::record::{Exchange, Record};
use crate::run::Run;
use crate::stats::Api;
use crate::{classify, regress};

const PREDICT: &str = "tensorflow/serving/predict";

/// A hint for a run that finds no memory.
const TOO_MUCH: &str = "send fewer rows at once, or let the device or the model hold more: \
                        GET /v1/memory says who holds what, `tensord plan` what fits";

/// The most output filters that a request may have.
const FILTERS_MAX: usize = 10_000;

/// Names are joined until they are longer than this, which is more than a status keeps.
const JOINED_MAX: usize = 16 << 10;

/// The inputs of a run, in the signature's order, and the places of the outputs asked for.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// One tensor for each input of the signature.
    pub(crate) tensors: Vec<Tensor>,
    /// The indices of the outputs that are wanted.
    pub(crate) outputs: Vec<usize>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The version that answered.
    pub(crate) version: i64,
    /// The signature that was run.
    pub(crate) signature: String,
    /// The outputs by their aliases.
    pub(crate) outputs: Vec<(String, Tensor)>,
}

/// The servable and the signature that a call means.
pub(crate) fn find(
    context: &Context,
    call: &Call,
) -> Result<(Handle<Servable>, Arc<Signature>), Status> {
    let servable = call.servable_to_run(context)?;
    let name = call.signature_name();
    let signature = servable.signature(name).ok_or_else(|| {
        // FAILED_PRECONDITION as in `predict_util.cc`.
        let text = format!("Serving signature key \"{}\" not found.", clipped(name));
        let hint = hints::of_signature(&servable, name);
        Status::new(Code::FailedPrecondition, text).with_hint(hint)
    })??;
    context.method_names.check_predict(signature)?;
    let signature = Arc::clone(signature);
    Ok((servable, signature))
}

/// The bytes that the inputs of a request stand for, at least: one value stands for any number.
pub(crate) fn unfolded_bytes(inputs: &BTreeMap<String, TensorProto>) -> usize {
    let of = |proto: &TensorProto| {
        let sizes = proto.tensor_shape.iter().flat_map(|shape| &shape.dim);
        let sizes = sizes.map(|dim| usize::try_from(dim.size).unwrap_or(0));
        let last = proto.string_val.last().map_or(0, bytes::Bytes::len);
        let width = proto_dtype(proto).map_or(1, |dtype| dtype.size().max(1));
        sizes.fold(width.saturating_add(last), usize::saturating_mul)
    };
    inputs.values().map(of).fold(0, usize::saturating_add)
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
    let misfit = hints::misfit(signature, &tensors);
    let run = Run { servable, signature, inputs: tensors, outputs, urgency };
    let values =
        run.outputs(context, Api::Predict).await.map_err(|status| of_run(status, misfit))?;
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

/// A failure to read inputs, with what the signature takes if that is what is wrong.
pub(crate) fn of_inputs(status: Status, signature: &Signature) -> Status {
    if status.code != Code::InvalidArgument {
        return status;
    }
    status.or_hint(|| hints::taken(signature))
}

/// A failed run, with what does not fit the signature, or with what to do for want of memory.
fn of_run(status: Status, misfit: Option<String>) -> Status {
    match (status.code, misfit) {
        (Code::InvalidArgument, Some(misfit)) => status.or_hint(|| misfit),
        (Code::ResourceExhausted, _) => status.or_hint(|| TOO_MUCH.to_owned()),
        _ => status,
    }
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

/// An input as a request gives it.
pub(crate) trait Given {
    /// The dtype it says it has, if it is one that can be sent.
    fn dtype(&self) -> Option<DType>;

    /// Makes a tensor of it.
    fn read(self, alias: &str, limit_bytes: usize) -> Result<Tensor, Status>;
}

/// JSON was read by the dtypes of the signature.
impl Given for Tensor {
    fn dtype(&self) -> Option<DType> {
        None
    }

    fn read(self, _alias: &str, _limit_bytes: usize) -> Result<Tensor, Status> {
        Ok(self)
    }
}

impl Given for TensorProto {
    fn dtype(&self) -> Option<DType> {
        let can_be_sent = |dtype: &DType| dtype.is_plain() || *dtype == DType::String;
        proto_dtype(self).filter(can_be_sent)
    }

    fn read(self, alias: &str, limit_bytes: usize) -> Result<Tensor, Status> {
        Tensor::from_proto(&self, limit_bytes).map_err(|error| unread(alias, &error))
    }
}

/// An input that could not be read.
pub(crate) fn unread(alias: &str, error: &tensor::Error) -> Status {
    Status::new(error.code(), format!("tensor parsing error: {alias}: {error}"))
}

/// The inputs of a request, in the signature's order, none of which may take more than
/// `limit_bytes`. Their names and dtypes are checked before anything is made of them.
pub(crate) fn inputs<T: Given>(
    signature: &Signature,
    mut given: BTreeMap<String, T>,
    filter: &[String],
    limit_bytes: usize,
) -> Result<Inputs, Status> {
    check_count(signature, &given).map_err(|status| {
        status.with_hint(hints::of_inputs(signature, given.keys().map(|s| &**s)))
    })?;
    let mut found = Vec::with_capacity(signature.inputs.len());
    for (alias, endpoint) in &signature.inputs {
        let value = given.remove(alias);
        if value.is_none() && !signature.defaults.contains_key(alias) {
            let text = format!(
                "Signature input alias: {alias}(feed name: {}) not found in request and no \
                 default value provided. Inputs expected to be in the request {{{}}}, or default \
                 input alias set: {}",
                endpoint.tensor,
                joined(signature.inputs.keys()),
                joined(signature.defaults.keys()),
            );
            let hint = hints::of_inputs(signature, given.keys().map(|name| &**name));
            return Err(Status::invalid(text).with_hint(hint));
        }
        found.push((alias, endpoint, value));
    }
    if let Some(extra) = given.keys().next() {
        let text = format!(
            "Inputs contains invalid name. Used request inputs: {}, request input: {}",
            joined(signature.inputs.keys()),
            clipped(extra),
        );
        let hint = hints::of_inputs(signature, [extra.as_str()]);
        return Err(Status::invalid(text).with_hint(hint));
    }
    let outputs = outputs(signature, filter)?;
    for (number, (_, endpoint, value)) in found.iter().enumerate() {
        check_dtype(number, endpoint, value.as_ref())?;
    }
    let read = |(alias, _, value): (&String, _, Option<T>)| match value {
        Some(value) => value.read(alias, limit_bytes),
        None => Ok(signature.defaults[alias].clone()),
    };
    let tensors = found.into_iter().map(read).collect::<Result<_, Status>>()?;
    Ok(Inputs { tensors, outputs })
}

/// Fails if a request gives an input of another dtype than the graph takes.
fn check_dtype(number: usize, want: &Endpoint, value: Option<&impl Given>) -> Result<(), Status> {
    let Some(got) = value.and_then(Given::dtype) else { return Ok(()) };
    if got == want.fed {
        return Ok(());
    }
    // The text is TensorFlow's (`executor.cc`), which clients look for.
    let text = format!("Expects arg[{number}] to be {} but {got} is provided", want.fed);
    Err(Status::invalid(text))
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
                "output tensor alias not found in signature: {} Outputs expected to be in \
                 the set {{{}}}.",
                clipped(alias),
                joined(signature.outputs.keys()),
            ))
        })?;
        if !seen.insert(place) {
            let text = format!("duplicate output tensor alias: {}", clipped(alias));
            return Err(Status::invalid(text));
        }
        places.push(place);
    }
    Ok(places)
}

/// Names with commas between them, as TensorFlow Serving joins them. Clients choose them: there are
/// no more than a message holds.
pub(crate) fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut all = String::new();
    for (number, name) in names.enumerate() {
        if number > 0 {
            all.push(',');
        }
        all.push_str(&clipped(name));
        if all.len() > JOINED_MAX {
            break;
        }
    }
    all
}
