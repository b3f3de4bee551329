//! `Transpose` and `ConjugateTranspose`: the dimensions in another order.

use num_complex::Complex;
use smallvec::SmallVec;

use crate::prelude::*;

pub(super) const TRANSPOSE: OpDef =
    OpDef::pure("Transpose", RowRule::Transpose, |_| Ok(Box::new(Transpose { conjugate: false })));
pub(super) const CONJUGATE_TRANSPOSE: OpDef =
    OpDef::pure("ConjugateTranspose", RowRule::ConjugateTranspose, |_| {
        Ok(Box::new(Transpose { conjugate: true }))
    });

struct Transpose {
    conjugate: bool,
}

impl Op for Transpose {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, perm] = arity(inputs)?;
        perm.require_rank(1)?;
        let n_axes = perm.dims().and_then(|dims| dims[0].size());
        let rank = input.rank().or(n_axes);
        if let (Some(rank), Some(n_axes)) = (rank, n_axes)
            && rank != n_axes
        {
            return wrong_length(rank, n_axes);
        }
        let (Some(dims), Some(perm)) = (input.dims(), known_ints(perm)) else {
            return Ok(vec![spec_of_rank(input.dtype, rank)]);
        };
        let order = permutation(&perm, dims.len())?;
        let output = Spec::new(input.dtype, order.iter().map(|from| dims[*from].clone()));
        Ok(vec![with_sizes(output, sizes_of(input))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let order = permutation(&ints(&ctx.input(1))?, input.shape().rank())?;
        let strides = input.shape().strides();
        let shape: Shape = order.iter().map(|from| input.shape()[*from]).collect();
        let axes = order.iter().map(|from| (input.shape()[*from], strides[*from] as isize));
        let how = Gather { walk: Walk::new(0, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &shape, &how)?;
        if self.conjugate && matches!(input.dtype(), DType::Complex64 | DType::Complex128) {
            conjugate(&mut ctx.output_again(0)?);
        }
        Ok(())
    }
}

fn conjugate(output: &mut ViewMut<'_>) {
    match output.dtype() {
        DType::Complex64 => {
            output.as_mut_slice::<Complex<f32>>().iter_mut().for_each(|x| *x = x.conj());
        }
        DType::Complex128 => {
            output.as_mut_slice::<Complex<f64>>().iter_mut().for_each(|x| *x = x.conj());
        }
        _ => {}
    }
}

/// `perm` as indices, each of `0..rank` once.
pub(super) fn permutation(perm: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    if perm.len() != rank {
        return wrong_length(rank, perm.len());
    }
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    let mut order = SmallVec::new();
    for axis in perm {
        let Ok(at) = normalise_axis(*axis, rank) else {
            return invalid!("{axis} is out of range [0 .. {rank})");
        };
        if std::mem::replace(&mut seen[at], true) {
            return invalid!("perm {perm:?} names dimension {at} twice");
        }
        order.push(at);
    }
    Ok(order)
}

fn wrong_length<T>(rank: usize, n_axes: usize) -> Result<T> {
    // The text is TensorFlow's (`transpose_op.cc`).
    invalid!("transpose expects a vector of size {rank}. But input(1) is a vector of size {n_axes}")
}
