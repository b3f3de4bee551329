//! `InvertPermutation` and `UnravelIndex`: arithmetic on indices.

use num_traits::PrimInt;

use crate::prelude::*;

pub(super) const INVERT: OpDef =
    OpDef::pure("InvertPermutation", RowRule::Mixed, |_| Ok(Box::new(Invert)));
pub(super) const UNRAVEL: OpDef =
    OpDef::pure("UnravelIndex", RowRule::Mixed, |_| Ok(Box::new(Unravel)));

struct Invert;

impl Op for Invert {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [perm] = arity(inputs)?;
        perm.require_rank(1)?;
        Ok(vec![perm.with_dtype(perm.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let perm = ctx.input(0);
        let mut out = ctx.output(0, perm.dtype(), perm.shape())?;
        match perm.dtype() {
            DType::I32 => invert::<i32>(perm.as_slice(), out.as_mut_slice()),
            DType::I64 => invert::<i64>(perm.as_slice(), out.as_mut_slice()),
            other => invalid!("expected int32 or int64 but got {other}"),
        }
    }
}

/// Writes the place of each value.
fn invert<T: PrimInt + std::fmt::Display>(values: &[T], inverse: &mut [T]) -> Result<()> {
    // All bits are set: -1, which is no place.
    let none = !T::zero();
    inverse.fill(none);
    for (i, value) in values.iter().enumerate() {
        pace(4)?;
        let slot = value.to_usize().and_then(|at| inverse.get_mut(at));
        // The texts are TensorFlow's (`transpose_op.cc`).
        let (Some(slot), Some(place)) = (slot, T::from(i)) else {
            return invalid!("{value} is not between 0 and {}", values.len());
        };
        if *slot != none {
            return invalid!("{value} is duplicated in the input.");
        }
        *slot = place;
    }
    Ok(())
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
        // The size is of the dtype of the dims.
        let is_wide = ctx.input(1).dtype() == DType::I64;
        let size = size.filter(|size| is_wide || i32::try_from(*size).is_ok());
        let Some(size) = size.filter(|_| dims.iter().all(|dim| *dim > 0)) else {
            return invalid!("the dims {dims:?} are no shape");
        };
        let n = indices.n_elements();
        if n == 0 {
            return invalid!("received empty tensor indices");
        }
        for i in 0..n {
            pace(4)?;
            if !(0..size).contains(&int_at(&indices, i)?) {
                return invalid!("index is out of bound as with dims");
            }
        }
        let shape = match indices.shape().rank() {
            0 => Shape::checked([dims.len() as i64])?,
            _ => Shape::checked([dims.len() as i64, n as i64])?,
        };
        let mut out = ctx.output(0, indices.dtype(), &shape)?;
        let mut stride = size;
        for (row, dim) in dims.iter().enumerate() {
            stride /= dim;
            for_integer!(indices.dtype(), T => {
                let out = &mut out.as_mut_slice::<T>()[row * n..(row + 1) * n];
                for (i, out) in out.iter_mut().enumerate() {
                    *out = (int_at(&indices, i)? / stride % dim) as T;
                }
            });
        }
        Ok(())
    }
}
