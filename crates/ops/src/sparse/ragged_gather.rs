//! `RaggedGather`: rows of a ragged tensor by their numbers.
//!
//! Follows `ragged_gather_op.cc` of TensorFlow.

use super::ragged::{check_splits, splits_tensor};
use super::rows::gather_rows;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("RaggedGather", RowRule::Mixed, |attrs| {
    match attrs.count("PARAMS_RAGGED_RANK")? {
        0 => invalid!("PARAMS_RAGGED_RANK must be at least 1"),
        ragged_rank => Ok(Box::new(RaggedGather {
            ragged_rank,
            n_splits: attrs.count("OUTPUT_RAGGED_RANK")?,
            splits: attrs.dtype_or("Tsplits", DType::I64)?,
        })),
    }
});

struct RaggedGather {
    ragged_rank: usize,
    n_splits: usize,
    splits: DType,
}

impl Op for RaggedGather {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.ragged_rank + 2 {
            return invalid!("expected {} inputs but got {}", self.ragged_rank + 2, inputs.len());
        }
        let (values, indices) = (&inputs[self.ragged_rank], &inputs[self.ragged_rank + 1]);
        values.require_rank_at_least(1)?;
        if let Some(rank) = indices.rank()
            && rank + self.ragged_rank != self.n_splits + 1
        {
            return invalid!("indices {indices} do not give {} row splits", self.n_splits);
        }
        let mut specs = vec![Spec::new(self.splits, [Dim::Unknown]); self.n_splits];
        specs.push(match values.dims() {
            Some(dims) => {
                Spec::new(values.dtype, [Dim::Unknown].into_iter().chain(dims[1..].iter().cloned()))
            }
            None => Spec::unknown(values.dtype),
        });
        Ok(specs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (values, indices) = (ctx.input(self.ragged_rank), ctx.input(self.ragged_rank + 1));
        if values.shape().rank() == 0
            || indices.shape().rank() + self.ragged_rank != self.n_splits + 1
        {
            return invalid!(
                "params or indices have the wrong rank: {} and {}",
                values.shape(),
                indices.shape()
            );
        }
        let mut levels = Vec::new();
        let mut n_below = values.shape()[0];
        for i in (0..self.ragged_rank).rev() {
            let splits = ctx.input(i);
            // Values behind the last row are no matter.
            let last = splits.n_elements().checked_sub(1).map(|at| int_at(&splits, at));
            let last = last.transpose()?.and_then(|last| usize::try_from(last).ok());
            let splits = check_splits(splits, last.map_or(n_below, |last| last.min(n_below)))?;
            n_below = splits.len() - 1;
            levels.push(splits);
        }
        levels.reverse();
        let Some(indices_flat) = booked_i64(&indices)? else {
            return invalid!("indices must be int32 or int64, not {}", indices.dtype());
        };
        let n_rows = levels[0].len() - 1;
        // The ranges of rows taken, level by level inwards.
        let mut ranges = BookedVec::<(usize, usize)>::with_capacity(indices_flat.len())?;
        for (i, index) in indices_flat.iter().enumerate() {
            pace(4)?;
            match usize::try_from(*index) {
                Ok(row) if row < n_rows => ranges.push((row, row + 1))?,
                _ => return invalid!("indices[{i}] = {index} is not in [0, {n_rows})"),
            }
        }
        let mut splits_out = outer_splits(indices.shape())?;
        for splits in &levels {
            let mut out = BookedVec::filled(0, 1)?;
            for (start, end) in ranges.iter_mut() {
                pace(8)?;
                let first = out.last().copied().unwrap_or(0);
                out.extend((*start..*end).map(|row| first + splits[row + 1] - splits[*start]))?;
                (*start, *end) = (splits[*start], splits[*end]);
            }
            splits_out.push(out);
        }
        for (i, splits) in splits_out.iter().enumerate() {
            ctx.set_output(i, splits_tensor(self.splits, splits)?)?;
        }
        ctx.set_output(self.n_splits, gather_rows(values, &ranges)?)
    }
}

/// The splits of the dimensions of `indices` behind its first.
pub(super) fn outer_splits(indices: &Shape) -> Result<Vec<BookedVec<usize>>> {
    let splits = |axis: usize| {
        let n_rows: usize = indices[..axis].iter().product();
        Ok(BookedVec::collect((0..=n_rows).map(|row| row * indices[axis]))?)
    };
    (1..indices.rank()).map(splits).collect()
}
