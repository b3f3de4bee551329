//! `InplaceUpdate`, `InplaceAdd`, `InplaceSub`: rows of a tensor changed by number.
//!
//! TensorFlow changes the tensor itself; we give a changed copy, which nobody can tell apart in a
//! graph that reads only the result.

use crate::combine::{Combine, Number, for_combined};
use crate::prelude::*;

pub(super) const UPDATE: OpDef = OpDef::pure("InplaceUpdate", RowRule::Mixed, |_| {
    Ok(Box::new(Inplace { how: Combine::Update }))
});
pub(super) const ADD: OpDef =
    OpDef::pure("InplaceAdd", RowRule::Mixed, |_| Ok(Box::new(Inplace { how: Combine::Add })));
pub(super) const SUB: OpDef =
    OpDef::pure("InplaceSub", RowRule::Mixed, |_| Ok(Box::new(Inplace { how: Combine::Sub })));

struct Inplace {
    how: Combine,
}

impl Op for Inplace {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, rows, _] = arity(inputs)?;
        x.require_rank_at_least(1)?;
        rows.require_rank(1)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, rows, v) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let n = rows.n_elements();
        let Some((n_rows, inner)) = x.shape().split_first() else {
            return invalid!("x must be at least a vector");
        };
        let fits = v.shape().first() == Some(&n) && v.shape().get(1..) == Some(inner);
        if !fits || x.dtype() != v.dtype() || !x.dtype().is_plain() {
            let (x, v) = (x.shape(), v.shape());
            return invalid!("v {v} does not have a row of x {x} for each of {n} rows");
        }
        if x.n_elements() == 0 {
            // Rows of nothing: TensorFlow does not even look at their numbers.
            ctx.output(0, x.dtype(), x.shape())?;
            return Ok(());
        }
        let len: usize = inner.iter().product();
        let mut starts = ctx.scratch().part(n)?;
        for (i, start) in starts.iter_mut().enumerate() {
            pace(4)?;
            let row = int_at(&rows, i)?;
            // Rows are counted around, as TensorFlow does.
            match usize::try_from(row.rem_euclid((*n_rows as i64).max(1))) {
                Ok(row) if row < *n_rows => *start = row * len,
                _ => return invalid!("there is no row {row}"),
            }
        }
        let how = self.how;
        let mut output = ctx.output(0, x.dtype(), x.shape())?;
        output.bytes().copy_from_slice(x.bytes());
        if how == Combine::Update {
            for_width!(x.dtype(), T => {
                let (out, new) = (output.as_wide_mut::<T>(), v.as_wide::<T>());
                for (i, start) in starts.iter().enumerate() {
                    pace(len)?;
                    out[*start..start + len].copy_from_slice(&new[i * len..(i + 1) * len]);
                }
            });
            return Ok(());
        }
        for_combined!(how, x.dtype(), T => {
            let (out, new) = (output.as_mut_slice::<T>(), v.as_slice::<T>());
            for (i, start) in starts.iter().enumerate() {
                pace(len)?;
                let new = &new[i * len..(i + 1) * len];
                T::combine(how, &mut out[*start..start + len], new);
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}
