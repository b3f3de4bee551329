//! From the `Input` of `Classify`, `Regress` and `MultiInference` to a tensor of serialized
//! `Example`s, and what the three share in choosing a signature.

use std::sync::Arc;

use prost::Message as _;
use proto::serving::Input;
use proto::serving::input::Kind;
use proto::tensorflow::DataType;
use session::{Servable, Signature};
use status::Status;
use tensor::{DType, Shape, Tensor};

use crate::{predict, signature_text};

/// The examples of an input as a vector of strings. A context is merged into each: its bytes come
/// first, which is how protobuf merges messages. All of their bytes are booked before the first is
/// written: a context counts as often as there are examples.
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
    let sizes = examples.iter().map(|example| example.encoded_len().checked_add(context.len()));
    let n_bytes = { sizes }.try_fold(0usize, |sum, size| sum.checked_add(size?));
    let n_bytes = n_bytes.ok_or_else(|| Status::invalid("Input is too large."))?;
    let mut bytes = context;
    let n_context = bytes.len();
    let shape = Shape::of(&[examples.len()]);
    let tensor = Tensor::of_strings(shape, n_bytes, |strings| {
        for example in &examples {
            bytes.truncate(n_context);
            example.encode(&mut bytes).expect("a vector takes any number of bytes");
            strings.push(&bytes)?;
        }
        Ok(())
    });
    tensor.map_err(|error| predict::unread("inputs", &error))
}

/// The bytes that the results in some outputs take as messages, at most: labels are copied, and
/// each class has its place in a list.
pub(crate) fn result_bytes(outputs: &[Tensor]) -> usize {
    const CLASS_BYTES: usize = 64;
    outputs.iter().map(|tensor| tensor.n_bytes() + tensor.n_elements() * CLASS_BYTES).sum()
}

/// The signature called `name`, with `Classify`'s and `Regress`'s text if there is none.
pub(crate) fn signature<'a>(
    servable: &'a Servable,
    name: &str,
) -> Result<&'a Arc<Signature>, Status> {
    let missing = || Status::invalid(format!("No signature was found with the name: {name}"));
    servable.signature(name).ok_or_else(missing)?
}

/// A signature as it stands in the SavedModel, for messages.
pub(crate) fn described(servable: &Servable, signature: &Signature) -> String {
    servable.signature_defs.get(&signature.name).map(signature_text::text).unwrap_or_default()
}

/// The name of a dtype in `types.proto`.
pub(crate) fn enum_name(dtype: DType) -> &'static str {
    DataType::try_from(dtype.number()).unwrap_or(DataType::DtInvalid).as_str_name()
}
