//! `Softmax`: makes each row along the last axis non-negative and sum to one.

use num_traits::Float;

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Softmax", |_| Ok(Box::new(Softmax)));

struct Softmax;

impl Op for Softmax {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits] = arity(inputs)?;
        logits.require_rank_at_least(1)?;
        Ok(vec![logits.with_dtype(logits.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (logits, mut probs) = ctx.unary()?;
        let width = logits.shape().last_dim();
        for_float!(logits.dtype(), T => {
            softmax::<T>(logits.as_slice(), probs.as_mut_slice(), width);
        });
        Ok(())
    }
}

/// Writes the softmax of each row of `width` logits to the same row of `probs`.
fn softmax<T: Float>(logits: &[T], probs: &mut [T], width: usize) {
    assert_eq!(logits.len(), probs.len());
    let width = width.max(1); // Empty rows have no elements, so any width will do.
    for (row, out) in logits.chunks_exact(width).zip(probs.chunks_exact_mut(width)) {
        // Shifting by the maximum cancels out, and keeps `exp` from overflowing.
        let max = row.iter().copied().fold(T::neg_infinity(), T::max);
        let mut sum = T::zero();
        for (x, p) in row.iter().zip(&mut *out) {
            *p = (*x - max).exp();
            sum = sum + *p;
        }
        out.iter_mut().for_each(|p| *p = *p / sum);
    }
}
