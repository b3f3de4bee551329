//! `_Activation`: a function of each element that TensorFlow has no op for. Graph passes make it of
//! the ops that it was exported as.

use kernels::Activation;

use super::fused::activation;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("_Activation", RowRule::Elementwise, |attrs| {
    Ok(Box::new(Activate(activation(attrs.str("name")?, attrs)?)))
});

struct Activate(Activation);

/// The elements of one task.
const TASK_ELEMENTS: usize = 8 << 10;

impl Op for Activate {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        if x.dtype != DType::F32 {
            return unsupported!("activations are for float, not for {}", x.dtype);
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (pool, activation) = (ctx.env().pool, self.0);
        if let Some(mut out) = ctx.in_place() {
            pool.run_chunks(out.as_mut_slice(), TASK_ELEMENTS, &|_, part| activation.apply(part));
            return Ok(());
        }
        let (x, mut out) = ctx.unary()?;
        if x.dtype() != DType::F32 {
            return unsupported!("activations are for float, not for {}", x.dtype());
        }
        let x: &[f32] = x.as_slice();
        pool.run_chunks(out.as_mut_slice(), TASK_ELEMENTS, &|task, part: &mut [f32]| {
            part.copy_from_slice(&x[task * TASK_ELEMENTS..][..part.len()]);
            activation.apply(part);
        });
        Ok(())
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}
