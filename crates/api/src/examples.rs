//! From the `Input` of `Classify`, `Regress` and `MultiInference` to a tensor of serialized
//! `Example`s, and what the three share in choosing a signature.

use std::sync::Arc;

use prost::Message as _;
use proto::serving::Input;
use proto::serving::input::Kind;
use proto::tensorflow::{DataType, Example};
use session::{Servable, Signature};
use tensor::{DType, Shape, Strings, Tensor};

use crate::signature_text;
use crate::status::Status;

/// The examples of an input as a vector of strings. A context is merged into each: its bytes come
/// first, which is how protobuf merges messages.
pub(crate) fn serialized(input: Option<Input>) -> Result<Tensor, Status> {
    let (context, examples) = match input.and_then(|input| input.kind) {
        None => (Vec::new(), Vec::new()),
        Some(Kind::ExampleList(list)) => (Vec::new(), list.examples),
        Some(Kind::ExampleListWithContext(list)) => {
            (list.context.unwrap_or_default().encode_to_vec(), list.examples)
        }
    };
    if examples.is_empty() {
        return Err(Status::invalid("Input is empty."));
    }
    let one = |example: &Example| {
        let mut bytes = context.clone();
        bytes.extend_from_slice(&example.encode_to_vec());
        bytes
    };
    let strings: Strings = examples.iter().map(one).collect();
    let shape = Shape::of(&[strings.len()]);
    Tensor::from_strings(shape, strings).map_err(|error| Status::invalid(error.to_string()))
}

/// The signature called `name`, with `Classify`'s and `Regress`'s text if there is none.
pub(crate) fn signature<'a>(
    servable: &'a Servable,
    name: &str,
) -> Result<&'a Arc<Signature>, Status> {
    let missing = || Status::invalid(format!("No signature was found with the name: {name}"));
    Ok(servable.signature(name).ok_or_else(missing)??)
}

/// A signature as it stands in the SavedModel, for messages.
pub(crate) fn described(servable: &Servable, signature: &Signature) -> String {
    servable.signature_defs.get(&signature.name).map(signature_text::text).unwrap_or_default()
}

/// The name of a dtype in `types.proto`.
pub(crate) fn enum_name(dtype: DType) -> &'static str {
    DataType::try_from(dtype.number()).unwrap_or(DataType::DtInvalid).as_str_name()
}
