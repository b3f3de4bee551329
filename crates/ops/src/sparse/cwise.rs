//! `SparseDenseCwiseAdd`, `SparseDenseCwiseMul`, `SparseDenseCwiseDiv` and `SparseTensorDenseAdd`:
//! sparse tensors with dense ones, element by element.
//!
//! Follows `sparse_dense_binary_op_shared.cc` and `sparse_tensor_dense_add_op.cc` of TensorFlow.

use super::coo::{self, Coo};
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const ADD: OpDef =
    OpDef::pure("SparseDenseCwiseAdd", RowRule::Mixed, |_| Ok(Box::new(Cwise::Add)));
pub(super) const MUL: OpDef =
    OpDef::pure("SparseDenseCwiseMul", RowRule::Mixed, |_| Ok(Box::new(Cwise::Mul)));
pub(super) const DIV: OpDef =
    OpDef::pure("SparseDenseCwiseDiv", RowRule::Mixed, |_| Ok(Box::new(Cwise::Div)));
pub(super) const DENSE_ADD: OpDef =
    OpDef::pure("SparseTensorDenseAdd", RowRule::Mixed, |_| Ok(Box::new(DenseAdd)));

#[derive(Clone, Copy)]
enum Cwise {
    Add,
    Mul,
    Div,
}

impl Op for Cwise {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, dense] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        dense.require_dtype(values.dtype)?;
        Ok(vec![Spec::new(values.dtype, [coo::n_entries_dim(indices, values)])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let dense = ctx.input(3);
        if sparse.rank() == 0 {
            return invalid!("The shape argument requires at least one element.");
        }
        let mut places = ctx.scratch().part(sparse.len())?;
        broadcast_places(&sparse, dense.shape(), &mut places)?;
        let mut output = ctx.output(0, dense.dtype(), &Shape::of(&[sparse.len()]))?;
        for_any_number!(dense.dtype(), T => {
            let (values, dense): (&[T], &[T]) = (sparse.values.as_slice(), dense.as_slice());
            let out = output.as_mut_slice().iter_mut();
            for ((out, value), place) in out.zip(values).zip(places.iter()) {
                pace(4)?;
                let other = dense[*place];
                let result = match self {
                    Self::Add => Some(value.plus(other)),
                    Self::Mul => Some(value.times(other)),
                    Self::Div => value.over(other),
                };
                let Some(result) = result else { return invalid!("Integer division by zero") };
                *out = result;
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}

/// Writes the element of a dense tensor, broadcast to the sparse one, that each entry meets.
fn broadcast_places(sparse: &Coo<'_>, dense: &Shape, places: &mut [usize]) -> Result<()> {
    let Some(skipped) = sparse.rank().checked_sub(dense.rank()) else {
        return invalid!(
            "broadcasts dense to sparse only; got incompatible shapes: {:?} vs. {dense}",
            sparse.dims
        );
    };
    let fits = dense.iter().zip(&sparse.dims[skipped..]).all(|(d, s)| *d == 1 || *d as i64 == *s);
    if !fits {
        return invalid!(
            "broadcasts dense to sparse only; got incompatible shapes: {:?} vs. {dense}",
            sparse.dims
        );
    }
    let strides = dense.strides();
    for (i, (index, place)) in sparse.entries().zip(places).enumerate() {
        pace(8)?;
        coo::check_inside(index, sparse.dims, i)?;
        let steps = index[skipped..].iter().zip(dense.iter()).zip(&strides);
        *place =
            steps.map(|((at, dim), step)| if *dim == 1 { 0 } else { *at as usize * step }).sum();
    }
    Ok(())
}

struct DenseAdd;

impl Op for DenseAdd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, dense] = arity(inputs)?;
        indices.require_rank(2)?;
        values.require_rank(1)?;
        shape.require_rank(1)?;
        dense.require_dtype(values.dtype)?;
        Ok(vec![dense.with_dtype(dense.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, values, dense) = (ctx.input(0), ctx.input(1), ctx.input(3));
        let dims = ints(&ctx.input(2))?;
        let shape = dense.shape();
        if dims[..] != shape.to_i64()[..] {
            return invalid!("the sparse tensor of shape {dims:?} and the dense of {shape} differ");
        }
        if indices.shape().dims() != [values.n_elements(), dims.len()] {
            return invalid!(
                "a_indices has shape {}, not a row for each of {} values",
                indices.shape(),
                values.n_elements()
            );
        }
        let strides = shape.strides();
        let mut places = ctx.scratch().part::<usize>(values.n_elements())?;
        for (i, place) in places.iter_mut().enumerate() {
            pace(8)?;
            let index = (0..dims.len()).map(|axis| int_at(&indices, i * dims.len() + axis));
            let index = index.collect::<Result<Ints>>()?;
            coo::check_inside(&index, &dims, i)?;
            *place = index.iter().zip(&strides).map(|(at, step)| *at as usize * step).sum();
        }
        let mut output = ctx.output(0, dense.dtype(), shape)?;
        for_any_number!(dense.dtype(), T => {
            let values: &[T] = values.as_slice();
            let out: &mut [T] = output.as_mut_slice();
            out.copy_from_slice(dense.as_slice());
            for (place, value) in places.iter().zip(values) {
                pace(4)?;
                out[*place] = out[*place].plus(*value);
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}
