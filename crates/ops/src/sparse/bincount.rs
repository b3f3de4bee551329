//! `RaggedBincount` and `SparseBincount`: how often, or with which weight, each
//! number occurs in each row.
//!
//! Follows `bincount_op.cc` of TensorFlow.

use super::coo::{self, Coo, checked_shape};
use super::number::Number;
use super::ragged::read_splits;
use crate::prelude::*;

pub(super) const RAGGED: OpDef = OpDef::pure("RaggedBincount", RowRule::Mixed, |attrs| {
    Ok(Box::new(Ragged(Counter::read(attrs)?)))
});
pub(super) const SPARSE: OpDef = OpDef::pure("SparseBincount", RowRule::Mixed, |attrs| {
    Ok(Box::new(Sparse(Counter::read(attrs)?)))
});

/// The settings of counting.
struct Counter {
    /// `true` if the counter only says whether a number occurs.
    is_binary: bool,
}

impl Counter {
    fn read(attrs: &Attrs<'_>) -> Result<Self> {
        Ok(Self { is_binary: attrs.bool_or("binary_output", false)? })
    }

    /// Counts `values[i]` in row `rows(i)`; numbers from `size` on are left out.
    fn count(
        &self,
        ctx: &mut Ctx<'_>,
        job: &BincountJob<'_>,
        rows: impl Fn(usize) -> usize,
    ) -> Result<()> {
        let BincountJob { values, weights, size, n_rows } = *job;
        let dtype = weights.dtype();
        if !matches!(values.dtype(), DType::I32 | DType::I64) {
            return invalid!("values must be int32 or int64, not {}", values.dtype());
        }
        if weights.n_elements() > 0 && weights.shape() != values.shape() {
            return invalid!(
                "weights must be the same shape as arr or a length-0 tensor, in which case it \
                 acts as all weights equal to 1. Received {}",
                weights.shape()
            );
        }
        for i in 0..values.n_elements() {
            pace(4)?;
            if int_at(&values, i)? < 0 {
                return invalid!("Input must be non-negative");
            }
        }
        let batch = n_rows.map(|n| n as i64);
        let shape = checked_shape(dtype, batch.into_iter().chain([size as i64]))?;
        let mut output = ctx.output(0, dtype, &shape)?;
        macro_rules! count {
            ($T:ty, $one:expr) => {{
                let out: &mut [$T] = output.as_mut_slice();
                let weights: &[$T] = weights.as_slice();
                out.fill(<$T as Number>::zero());
                for i in 0..values.n_elements() {
                    pace(4)?;
                    let number = int_at(&values, i)? as usize;
                    if number >= size {
                        continue;
                    }
                    let slot = &mut out[rows(i) * size + number];
                    let weight = weights.get(i).copied().unwrap_or($one);
                    *slot = if self.is_binary { $one } else { slot.plus(weight) };
                }
            }};
        }
        match dtype {
            DType::F32 => count!(f32, 1.0),
            DType::F64 => count!(f64, 1.0),
            DType::I32 => count!(i32, 1),
            DType::I64 => count!(i64, 1),
            other => return crate::error::unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

/// The numbers that are counted.
struct BincountJob<'a> {
    values: View<'a>,
    weights: View<'a>,
    size: usize,
    /// The number of rows; none if there is one without a dimension for it.
    n_rows: Option<usize>,
}

/// The number of bins. Fails if it is no scalar or below zero.
fn bins(size: View<'_>) -> Result<usize> {
    match int(&size).map(|size| (size, usize::try_from(size))) {
        Ok((_, Ok(size))) => Ok(size),
        Ok((size, Err(_))) => invalid!("size ({size}) must be non-negative"),
        Err(_) => invalid!("Shape must be rank 0 but is {} for size", size.shape()),
    }
}

fn bins_dim(size: &Spec) -> Result<Dim> {
    size.require_rank(0)?;
    let dim = size.sizes().map_or(Dim::Unknown, |sizes| sizes[0].clone());
    match dim.known() {
        Some(size) if size < 0 => invalid!("size ({size}) must be non-negative"),
        _ => Ok(dim),
    }
}

struct Ragged(Counter);

impl Op for Ragged {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [splits, values, size, weights] = arity(inputs)?;
        splits.require_dtype(DType::I64)?;
        splits.require_rank(1)?;
        values.require_rank(1)?;
        let bins = bins_dim(size)?;
        let n_rows = splits.dims().map_or(Dim::Unknown, |dims| dims[0].minus(&Dim::Known(1)));
        Ok(vec![Spec::new(weights.dtype, [n_rows, bins])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (splits, values, weights) = (ctx.input(0), ctx.input(1), ctx.input(3));
        let size = bins(ctx.input(2))?;
        let mut scratch = ctx.scratch();
        let splits = read_splits(splits, values.n_elements(), &mut scratch)?;
        let mut rows = scratch.part(values.n_elements())?;
        for (row, pair) in splits.windows(2).enumerate() {
            pace(16)?;
            rows[pair[0]..pair[1]].fill(row);
        }
        let n_rows = Some(splits.len() - 1);
        self.0.count(ctx, &BincountJob { values, weights, size, n_rows }, |i| rows[i])
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[0]) + Scratch::bytes_for::<usize>(&inputs[1])
    }
}

struct Sparse(Counter);

impl Op for Sparse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, size, weights] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        let bins = bins_dim(size)?;
        let n_rows = shape.sizes().and_then(|sizes| sizes.first().cloned()).unwrap_or(Dim::Unknown);
        match coo::rank_dim(indices, shape).size() {
            Some(1) => Ok(vec![Spec::new(weights.dtype, [bins])]),
            Some(2) => Ok(vec![Spec::new(weights.dtype, [n_rows, bins])]),
            Some(_) => invalid!("indices must be of a vector or a matrix, but are {indices}"),
            None => Ok(vec![Spec::unknown(weights.dtype)]),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let weights = ctx.input(4);
        let size = bins(ctx.input(3))?;
        let n_rows = match sparse.dims {
            [_] => None,
            [n_rows, _] => Some(*n_rows),
            _ => return invalid!("indices must be of a vector or a matrix"),
        };
        sparse.check_inside()?;
        let n_rows = n_rows.map(|n| n.max(0) as usize);
        let job = BincountJob { values: sparse.values, weights, size, n_rows };
        let row = |i: usize| if n_rows.is_some() { sparse.entry(i)[0] as usize } else { 0 };
        self.0.count(ctx, &job, row)
    }
}
