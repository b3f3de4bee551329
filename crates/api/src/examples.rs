//! From the `Input` of `Classify`, `Regress` and `MultiInference` to a tensor of serialized
//! `Example`s, and what the three share in choosing a signature.

use std::sync::Arc;

use prost::Message as _;
use proto::serving::Input;
use proto::serving::input::Kind;
use proto::tensorflow::{DataType, Example};
use session::{Servable, Signature};
use status::{Status, clipped};
use tensor::{DType, Shape, Tensor};

use crate::codec::Codec;
use crate::{hints, predict, signature_text};

/// The examples of an input as a vector of strings. A context is merged into each: its bytes come
/// first, which is how protobuf merges messages. All of their bytes are booked before the first is
/// written: a context counts as often as there are examples.
pub(crate) fn serialized(input: Option<Input>) -> Result<Tensor, Status> {
    UnwrittenExamples::new(input)?.tensor()
}

/// The same, on a codec thread if there are many bytes to write: a context counts as often as
/// there are examples.
pub(crate) async fn serialized_by(codec: &Codec, input: Option<Input>) -> Result<Tensor, Status> {
    let listed = UnwrittenExamples::new(input)?;
    codec.run(listed.n_bytes, move || listed.tensor()).await?
}

/// The examples of an input, which are not written yet.
struct UnwrittenExamples {
    context: Vec<u8>,
    examples: Vec<Example>,
    /// The bytes of all of them, each with the context.
    n_bytes: usize,
}

impl UnwrittenExamples {
    fn new(input: Option<Input>) -> Result<Self, Status> {
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
        Ok(Self { context, examples, n_bytes })
    }

    fn tensor(self) -> Result<Tensor, Status> {
        let Self { context: mut bytes, examples, n_bytes } = self;
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
    let text = || format!("No signature was found with the name: {}", clipped(name));
    let missing = || Status::invalid(text()).with_hint(hints::of_signature(servable, name));
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
