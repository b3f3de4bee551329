//! `_LayerNorm`: takes mean and deviation out of each row along the last axis, then scales and
//! shifts it. Graph passes make it of the ops that it was exported as.

use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("_LayerNorm", RowRule::LastAxis, |attrs| {
    Ok(Box::new(LayerNorm { epsilon: attrs.float("epsilon")? }))
});

struct LayerNorm {
    epsilon: f32,
}

/// The least elements that are worth a task of their own.
const TASK_ELEMENTS: usize = 8 << 10;

impl Op for LayerNorm {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, scale, shift] = arity(inputs)?;
        x.require_rank_at_least(1)?;
        for vector in [scale, shift] {
            vector.require_rank(1)?;
            let differs = |dims: &[Dim]| {
                vector.dims().is_some_and(|own| dims[dims.len() - 1].differs(&own[0]))
            };
            if x.dims().is_some_and(differs) {
                return invalid!("{vector} does not fit the rows of {x}");
            }
        }
        if x.dtype != DType::F32 {
            return unsupported!("normalisation is for float, not for {}", x.dtype);
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (pool, scale, shift) = (ctx.env().pool, ctx.input(1), ctx.input(2));
        let x = ctx.input(0);
        let (x, mut out) = match ctx.is_in_place() {
            true => (None, ctx.in_place().ok_or_else(|| Error::Internal("no output".to_owned()))?),
            false => (Some(x), ctx.output(0, x.dtype(), x.shape())?),
        };
        let width = out.shape().last_dim();
        if out.dtype() != DType::F32 || scale.n_elements() != width || shift.n_elements() != width {
            return invalid!("{} and {} do not fit rows of {width}", scale.shape(), shift.shape());
        }
        if width == 0 {
            return Ok(());
        }
        let (scale, shift): (&[f32], &[f32]) = (scale.as_slice(), shift.as_slice());
        let x = x.map(|x| x.as_slice::<f32>());
        let size = TASK_ELEMENTS.div_ceil(width) * width;
        pool.run_chunks(out.as_mut_slice(), size, &|task, part: &mut [f32]| {
            if let Some(x) = x {
                part.copy_from_slice(&x[task * size..][..part.len()]);
            }
            for row in part.chunks_exact_mut(width) {
                kernels::normalise_row(row, self.epsilon, scale, shift);
            }
        });
        Ok(())
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}
