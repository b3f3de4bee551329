//! `LRN`: each element divided by a power of the squares of its neighbouring channels.
//!
//! Follows `lrn_op.cc`.

use super::dtypes::{through_f32, wide_bytes};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("LRN", RowRule::Images, |attrs| {
    Ok(Box::new(Lrn {
        radius: usize::try_from(attrs.int_or("depth_radius", 5)?).unwrap_or(0),
        bias: attrs.float_or("bias", 1.)?,
        alpha: attrs.float_or("alpha", 1.)?,
        beta: attrs.float_or("beta", 0.5)?,
    }))
});

struct Lrn {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Op for Lrn {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        x.require_rank(4)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let scratch = ctx.scratch();
        let (x, mut out) = ctx.unary()?;
        if x.shape().rank() != 4 {
            return invalid!("expected rank 4 but got {}", x.shape());
        }
        let depth = x.shape().last_dim();
        match x.dtype() {
            DType::F32 => self.normalise(x.as_slice(), out.as_mut_slice(), depth),
            _ => through_f32(scratch, &[x], &mut out, |_, inputs, out| {
                self.normalise(&inputs[0], out, depth);
                Ok(())
            })?,
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        wide_bytes(inputs, outputs)
    }
}

impl Lrn {
    fn normalise(&self, x: &[f32], out: &mut [f32], depth: usize) {
        let depth = depth.max(1);
        for (x, out) in x.chunks_exact(depth).zip(out.chunks_exact_mut(depth)) {
            if is_stopped(16 * depth) {
                return;
            }
            for (i, out) in out.iter_mut().enumerate() {
                let first = i.saturating_sub(self.radius);
                let end = i.saturating_add(self.radius).saturating_add(1).min(depth);
                let squares: f32 = x[first..end].iter().map(|x| x * x).sum();
                *out = x[i] * (self.bias + self.alpha * squares).powf(-self.beta);
            }
        }
    }
}
