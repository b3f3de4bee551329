//! `Softmax`: makes each row along the last axis non-negative and sum to one.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Softmax", RowRule::LastAxis, |_| Ok(Box::new(Softmax)));

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
        let mut scratch = ctx.scratch();
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
                probs.chunks_exact_mut(width).for_each(kernels::softmax_row);
            });
            return Ok(());
        }
        for_float!(probs.dtype(), T => {
            if let Some(logits) = logits {
                probs.as_mut_slice::<T>().copy_from_slice(logits.as_slice());
            }
        });
        match probs.dtype() {
            DType::F16 => softmax_half::<f16>(probs.as_mut_slice(), &mut scratch.part(width)?),
            DType::BF16 => softmax_half::<bf16>(probs.as_mut_slice(), &mut scratch.part(width)?),
            _ => probs.as_mut_slice().chunks_exact_mut(width).for_each(softmax),
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let width = inputs[0].shape().map_or(0, |shape| shape.last_dim());
        let is_half = matches!(inputs[0].dtype, DType::F16 | DType::BF16);
        if is_half { Scratch::bytes_of::<f32>(width.max(1)) } else { 0 }
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

/// Replaces a row of logits by its softmax.
fn softmax(row: &mut [f64]) {
    // Shifting by the maximum cancels out, and keeps `exp` from overflowing.
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for x in &mut *row {
        *x = (*x - max).exp();
        sum += *x;
    }
    row.iter_mut().for_each(|p| *p /= sum);
}

/// Replaces each row by its softmax, through `wide`, which is as long as one of them: a sum of 16
/// bits would stand still at 2048, or at 256.
fn softmax_half<T>(rows: &mut [T], wide: &mut [f32])
where
    [T]: HalfFloatSliceExt,
{
    for row in rows.chunks_exact_mut(wide.len()) {
        row.convert_to_f32_slice(wide);
        kernels::softmax_row(wide);
        row.convert_from_f32_slice(wide);
    }
}
