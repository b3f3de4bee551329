//! `InvertPermutation` and `UnravelIndex`: arithmetic on indices.

use crate::prelude::*;

pub(super) const INVERT: OpDef = OpDef::pure("InvertPermutation", |_| Ok(Box::new(Invert)));
pub(super) const UNRAVEL: OpDef = OpDef::pure("UnravelIndex", |_| Ok(Box::new(Unravel)));

/// Writes integers as `int32` or `int64`.
fn write_ints(ctx: &mut Ctx<'_>, dtype: DType, shape: &Shape, values: &[i64]) -> Result<()> {
    let mut output = ctx.output(0, dtype, shape)?;
    match dtype {
        DType::I64 => output.as_mut_slice::<i64>().copy_from_slice(values),
        DType::I32 => {
            let pairs = output.as_mut_slice::<i32>().iter_mut().zip(values);
            pairs.for_each(|(x, value)| *x = *value as i32);
        }
        other => return invalid!("expected int32 or int64 but got {other}"),
    }
    Ok(())
}

struct Invert;

impl Op for Invert {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [perm] = arity(inputs)?;
        perm.require_rank(1)?;
        Ok(vec![perm.with_dtype(perm.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let perm = ctx.input(0);
        let values = ints(&perm)?;
        let mut inverse = vec![-1; values.len()];
        for (i, value) in values.iter().enumerate() {
            let slot = usize::try_from(*value).ok().and_then(|at| inverse.get_mut(at));
            // The texts are TensorFlow's (`transpose_op.cc`).
            let Some(slot) = slot else {
                return invalid!("{value} is not between 0 and {}", values.len());
            };
            if *slot != -1 {
                return invalid!("{value} is duplicated in the input.");
            }
            *slot = i as i64;
        }
        write_ints(ctx, perm.dtype(), perm.shape(), &inverse)
    }
}

/// Flat indices as one row of indices a dimension.
struct Unravel;

impl Op for Unravel {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, dims] = arity(inputs)?;
        indices.require_rank_at_most(1)?;
        dims.require_rank(1)?;
        let rank = dims.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let output = indices.rank().map(|index_rank| match index_rank {
            0 => Dims::from_iter([rank]),
            _ => Dims::from_iter([rank, indices.n_elements()]),
        });
        Ok(vec![spec_of(indices.dtype, output)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, dims) = (ctx.input(0), ints(&ctx.input(1))?);
        if dims.contains(&0) {
            // The texts are TensorFlow's (`unravel_index_op.cc`).
            return invalid!("Input dims cannot contain a dim of zero, but dims contains zero.");
        }
        let size = dims.iter().try_fold(1i64, |all, dim| all.checked_mul(*dim));
        let Some(size) = size.filter(|_| dims.iter().all(|dim| *dim > 0)) else {
            return invalid!("the dims {dims:?} are no shape");
        };
        let values = ints(&indices)?;
        if values.is_empty() {
            return invalid!("received empty tensor indices");
        }
        if values.iter().any(|index| *index < 0 || *index >= size) {
            return invalid!("index is out of bound as with dims");
        }
        let mut stride = size;
        let mut unravelled = Vec::with_capacity(dims.len() * values.len());
        for dim in &dims {
            stride /= dim;
            unravelled.extend(values.iter().map(|index| index / stride % dim));
        }
        let shape = match indices.shape().rank() {
            0 => Shape::checked([dims.len() as i64])?,
            _ => Shape::checked([dims.len() as i64, values.len() as i64])?,
        };
        write_ints(ctx, indices.dtype(), &shape, &unravelled)
    }
}
