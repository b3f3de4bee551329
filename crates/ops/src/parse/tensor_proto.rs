//! `ParseTensor` and `SerializeTensor`: tensors as serialized `TensorProto`s.

use prost::Message;
use proto::tensorflow::TensorProto;
use tensor::Layout;

use crate::prelude::*;

/// The most bytes that a parsed tensor may take: a few bytes may stand for any number of elements.
const LIMIT_BYTES: usize = 256 << 20;

pub(super) const PARSE: OpDef = OpDef::pure("ParseTensor", RowRule::Mixed, |attrs| {
    Ok(Box::new(Parse(attrs.dtype("out_type")?)))
});
pub(super) const SERIALIZE: OpDef =
    OpDef::pure("SerializeTensor", RowRule::Mixed, |_| Ok(Box::new(Serialize)));

struct Parse(DType);

impl Op for Parse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [serialized] = arity(inputs)?;
        serialized.require_dtype(DType::String)?;
        serialized.require_rank(0)?;
        Ok(vec![Spec::unknown(self.0)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let serialized = ctx.input(0);
        if serialized.shape().rank() != 0 {
            let shape = serialized.shape();
            return invalid!("Expected `serialized` to be a scalar, got shape: {shape}");
        }
        // A byte of a packed field is a number of up to eight.
        let _booked = Booked::new(serialized.strings().n_bytes().saturating_mul(8))?;
        let Ok(proto) = TensorProto::decode(serialized.strings().get(0)) else {
            return invalid!("Could not parse `serialized` as TensorProto");
        };
        let tensor = Tensor::from_proto(&proto, LIMIT_BYTES)?;
        if tensor.dtype() != self.0 {
            return invalid!(
                "Type mismatch between parsed tensor ({}) and dtype ({})",
                tensor.dtype(),
                self.0
            );
        }
        ctx.set_output(0, tensor)
    }
}

struct Serialize;

impl Op for Serialize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let tensor = ctx.input(0).to_tensor()?;
        // The message holds the elements once, and what is written of it once more.
        let _booked = Booked::new(tensor.n_bytes().saturating_mul(4))?;
        let bytes = tensor.to_proto(Layout::Content)?.encode_to_vec();
        let strings = Strings::copied(std::iter::once(&bytes[..]))?;
        ctx.set_output(0, Tensor::from_strings(Shape::scalar(), strings)?)
    }
}
