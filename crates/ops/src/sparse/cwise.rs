//! `SparseDenseCwiseAdd`, `SparseDenseCwiseMul`, `SparseDenseCwiseDiv` and `SparseTensorDenseAdd`:
//! sparse tensors with dense ones, element by element.
//!
//! Follows `sparse_dense_binary_op_shared.cc` and `sparse_tensor_dense_add_op.cc` of TensorFlow.

use super::coo::{self, Coo};
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const ADD: OpDef = OpDef::pure("SparseDenseCwiseAdd", |_| Ok(Box::new(Cwise::Add)));
pub(super) const MUL: OpDef = OpDef::pure("SparseDenseCwiseMul", |_| Ok(Box::new(Cwise::Mul)));
pub(super) const DIV: OpDef = OpDef::pure("SparseDenseCwiseDiv", |_| Ok(Box::new(Cwise::Div)));
pub(super) const DENSE_ADD: OpDef = OpDef::pure("SparseTensorDenseAdd", |_| Ok(Box::new(DenseAdd)));

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
        let places = broadcast_places(&sparse, dense.shape())?;
        let mut output = ctx.output(0, dense.dtype(), &Shape::of(&[sparse.len()]))?;
        for_any_number!(dense.dtype(), T => {
            let (values, dense): (&[T], &[T]) = (sparse.values.as_slice(), dense.as_slice());
            for ((out, value), place) in output.as_mut_slice().iter_mut().zip(values).zip(places) {
                let other = dense[place];
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
}

/// The element of a dense tensor, broadcast to the sparse one, that each entry meets.
fn broadcast_places(sparse: &Coo<'_>, dense: &Shape) -> Result<Vec<usize>> {
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
    let mut places = Vec::with_capacity(sparse.len());
    for (i, index) in sparse.entries().enumerate() {
        coo::check_inside(index, sparse.dims, i)?;
        let steps = index[skipped..].iter().zip(dense.iter()).zip(&strides);
        places.push(
            steps.map(|((at, dim), step)| if *dim == 1 { 0 } else { *at as usize * step }).sum(),
        );
    }
    Ok(places)
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
        let (Some(flat), Some(dims)) = (indices.to_i64(), ctx.input(2).to_i64()) else {
            return invalid!("a_indices and a_shape must be int32 or int64");
        };
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
        let mut places: Vec<usize> = Vec::with_capacity(values.n_elements());
        for i in 0..values.n_elements() {
            let index = &flat[i * dims.len()..(i + 1) * dims.len()];
            coo::check_inside(index, &dims, i)?;
            places.push(index.iter().zip(&strides).map(|(at, step)| *at as usize * step).sum());
        }
        let mut output = ctx.output(0, dense.dtype(), shape)?;
        for_any_number!(dense.dtype(), T => {
            let values: &[T] = values.as_slice();
            let out: &mut [T] = output.as_mut_slice();
            out.copy_from_slice(dense.as_slice());
            for (place, value) in places.into_iter().zip(values) {
                out[place] = out[place].plus(*value);
            }
        });
        Ok(())
    }
}
