//! `Bitcast`: the same bytes as elements of another dtype.

use crate::prelude::*;

pub(super) const BITCAST: OpDef = OpDef::pure("Bitcast", RowRule::Elementwise, |attrs| {
    Ok(Box::new(Bitcast { to: attrs.dtype("type")? }))
});

struct Bitcast {
    to: DType,
}

impl Op for Bitcast {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        Ok(vec![self.output(input)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let output = self.output(&Spec::concrete(input.dtype(), input.shape()))?;
        let Some(shape) = output.shape() else { return invalid!("the tensor is too large") };
        ctx.output(0, self.to, &shape)?.bytes().copy_from_slice(input.bytes());
        Ok(())
    }
}

impl Bitcast {
    fn output(&self, input: &Spec) -> Result<Spec> {
        let (from, to) = (input.dtype.size(), self.to.size());
        if from == 0 || to == 0 {
            return invalid!("Cannot bitcast from {} to {}", input.dtype, self.to);
        }
        let Some(dims) = input.dims() else { return Ok(Spec::unknown(self.to)) };
        let mut dims: Dims = dims.iter().cloned().collect();
        if from > to {
            dims.push(Dim::of(from / to));
        } else if from < to {
            let ratio = Dim::of(to / from);
            let fits = dims.pop().is_some_and(|last| !last.differs(&ratio));
            if !fits {
                // The text is TensorFlow's (`bitcast_op.cc`).
                return invalid!(
                    "Cannot bitcast from {} to {}: the last dimension of {input} is not {ratio}",
                    input.dtype,
                    self.to
                );
            }
        }
        Ok(spec_of(self.to, Some(dims)))
    }
}
