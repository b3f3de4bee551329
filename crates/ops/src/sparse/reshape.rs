//! `SparseReshape`: the same values at the indices that they have in another shape.
//!
//! Follows `reshape_util.cc` of TensorFlow.

use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("SparseReshape", RowRule::SparseReshape, |_| Ok(Box::new(Reshape)));

struct Reshape;

impl Op for Reshape {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, old, new] = arity(inputs)?;
        inputs.iter().try_for_each(|input| input.require_dtype(DType::I64))?;
        indices.require_rank(2)?;
        old.require_rank(1)?;
        new.require_rank(1)?;
        let dim = |spec: &Spec| spec.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let mut shape = Spec::new(DType::I64, [dim(new)]);
        if let Some(sizes) = new.sizes().filter(|sizes| sizes.iter().all(|s| !may_be_inferred(s))) {
            shape = shape.with_sizes(sizes);
        }
        Ok(vec![Spec::new(DType::I64, [dim(indices), dim(new)]), shape])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, old, new) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let &[n_entries, rank] = indices.shape().dims() else {
            return invalid!(
                "Input indices should be a matrix but received shape {}",
                indices.shape()
            );
        };
        if old.shape().rank() != 1 || new.shape().rank() != 1 {
            return invalid!(
                "Input and target shapes should be vectors but received shapes {} and {}",
                old.shape(),
                new.shape()
            );
        }
        let old: &[i64] = old.as_slice();
        if old.len() != rank {
            return invalid!(
                "Input tensor rank must match input shape length, but they are {rank} and {}",
                old.len()
            );
        }
        let n_old = product(old)?;
        let dims = complete(new.as_slice(), n_old)?;
        let out_shape =
            super::coo::checked_shape(DType::I64, [n_entries as i64, dims.len() as i64])?;
        let mut output = ctx.output(0, DType::I64, &out_shape)?;
        match *old == *dims {
            true => output.as_mut_slice().copy_from_slice(indices.as_slice::<i64>()),
            false => move_indices(indices.as_slice(), old, &dims, output.as_mut_slice()),
        }
        ctx.output(1, DType::I64, &Shape::of(&[dims.len()]))?.as_mut_slice().copy_from_slice(&dims);
        Ok(())
    }
}

/// Returns whether an element of the new shape may be -1.
fn may_be_inferred(size: &Dim) -> bool {
    match size {
        Dim::Known(size) => *size < 0,
        // A symbol is a size of an input; what else is made of it may be below zero.
        Dim::Symbolic(_) => false,
        Dim::Unknown => true,
    }
}

fn product(dims: &[i64]) -> Result<i64> {
    let mut product: i64 = 1;
    for dim in dims {
        if *dim < 0 {
            return invalid!("Input shape has a negative dimension: {dims:?}");
        }
        let Some(next) = product.checked_mul(*dim) else {
            return invalid!("Encountered overflow when multiplying the dimensions {dims:?}");
        };
        product = next;
    }
    Ok(product)
}

/// The new shape with its one unknown dimension filled in.
fn complete(new: &[i64], n_old: i64) -> Result<Ints> {
    let mut unknown = None;
    let mut product: i64 = 1;
    for (i, dim) in new.iter().enumerate() {
        match *dim {
            -1 if unknown.is_some() => {
                return invalid!("only one output dimension may be -1, not both of them");
            }
            -1 => unknown = Some(i),
            dim if dim < 0 => return invalid!("size {i} must be non-negative, not {dim}"),
            dim => {
                let Some(next) = product.checked_mul(dim) else {
                    return invalid!(
                        "Encountered overflow when multiplying the dimensions {new:?}"
                    );
                };
                product = next;
            }
        }
    }
    let mut dims = Ints::from_slice(new);
    if let Some(at) = unknown {
        if product == 0 {
            return invalid!(
                "reshape cannot infer the missing input size for an empty tensor unless all \
                 specified input sizes are non-zero"
            );
        }
        if n_old % product != 0 {
            return invalid!(
                "Input to reshape is a SparseTensor with {n_old} dense values, but the requested \
                 shape requires a multiple of {product}"
            );
        }
        dims[at] = n_old / product;
    } else if product != n_old {
        return invalid!(
            "Input to reshape is a tensor with {n_old} dense values, but the requested shape has \
             {product}"
        );
    }
    Ok(dims)
}

/// Writes each index as it is in the new shape. An index outside of the old shape gives some
/// index, as it does in TensorFlow.
fn move_indices(indices: &[i64], old: &[i64], new: &[i64], out: &mut [i64]) {
    if old.is_empty() || new.is_empty() {
        return;
    }
    for (from, to) in indices.chunks_exact(old.len()).zip(out.chunks_exact_mut(new.len())) {
        if is_stopped(8 * old.len()) {
            return;
        }
        let flat = from
            .iter()
            .zip(old)
            .fold(0i64, |flat, (index, dim)| flat.wrapping_mul(*dim).wrapping_add(*index));
        let mut rest = flat;
        for (index, dim) in to.iter_mut().zip(new).rev() {
            let dim = (*dim).max(1);
            *index = rest.wrapping_rem(dim);
            rest = rest.wrapping_div(dim);
        }
        // The outermost index holds whatever is left.
        to[0] = to[0].wrapping_add(rest.wrapping_mul(new[0].max(1)));
    }
}
