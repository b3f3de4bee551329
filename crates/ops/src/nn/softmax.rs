//! `Softmax`: makes each row along the last axis non-negative and sum to one.

use num_traits::Float;

use crate::prelude::*;
use crate::simd;

pub(super) const DEF: OpDef = OpDef::pure("Softmax", |_| Ok(Box::new(Softmax)));

struct Softmax;

/// The least elements that are worth a task of their own.
const TASK_ELEMENTS: usize = 8 << 10;

impl Op for Softmax {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits] = arity(inputs)?;
        logits.require_rank_at_least(1)?;
        Ok(vec![logits.with_dtype(logits.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (pool, logits) = (ctx.env().pool, ctx.input(0));
        let (logits, mut probs) = match ctx.is_in_place() {
            true => (None, ctx.in_place().ok_or_else(|| Error::Internal("no output".to_owned()))?),
            false => (Some(logits), ctx.output(0, logits.dtype(), logits.shape())?),
        };
        // Empty rows have no elements, so any width will do.
        let width = probs.shape().last_dim().max(1);
        let size = TASK_ELEMENTS.div_ceil(width) * width;
        if probs.dtype() == DType::F32 {
            let logits = logits.map(|logits| logits.as_slice::<f32>());
            pool.run_chunks(probs.as_mut_slice(), size, &|task, probs: &mut [f32]| {
                if let Some(logits) = logits {
                    probs.copy_from_slice(&logits[task * size..][..probs.len()]);
                }
                probs.chunks_exact_mut(width).for_each(simd::softmax_row);
            });
            return Ok(());
        }
        for_float!(probs.dtype(), T => {
            let probs = probs.as_mut_slice::<T>();
            if let Some(logits) = logits {
                probs.copy_from_slice(logits.as_slice());
            }
            probs.chunks_exact_mut(width).for_each(softmax);
        });
        Ok(())
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

/// Replaces a row of logits by its softmax.
fn softmax<T: Float>(row: &mut [T]) {
    // Shifting by the maximum cancels out, and keeps `exp` from overflowing.
    let max = row.iter().copied().fold(T::neg_infinity(), T::max);
    let mut sum = T::zero();
    for x in &mut *row {
        *x = (*x - max).exp();
        sum = sum + *x;
    }
    row.iter_mut().for_each(|p| *p = *p / sum);
}
