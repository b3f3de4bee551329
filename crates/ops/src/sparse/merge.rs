//! `SparseAdd`, `SparseSparseMaximum` and `SparseSparseMinimum`: two sparse tensors as one.
//!
//! Follows `sparse_add_op.cc` and `sparse_sparse_binary_op_shared.cc` of TensorFlow: the entries of
//! both are in order, and an entry that one lacks is zero there.

use std::cmp::Ordering;

use num_complex::Complex;

use super::coo::{self, Coo};
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const ADD: OpDef = OpDef::pure("SparseAdd", RowRule::Mixed, |_| Ok(Box::new(Add)));
pub(super) const MAXIMUM: OpDef =
    OpDef::pure("SparseSparseMaximum", RowRule::Mixed, |_| Ok(Box::new(Extreme { largest: true })));
pub(super) const MINIMUM: OpDef = OpDef::pure("SparseSparseMinimum", RowRule::Mixed, |_| {
    Ok(Box::new(Extreme { largest: false }))
});

/// An entry of the result: its entries in the two, if they have it.
type Pair = (Option<usize>, Option<usize>);

/// The entries of both, in order. Fails unless they have one shape.
fn pairs(a: &Coo<'_>, b: &Coo<'_>) -> Result<BookedVec<Pair>> {
    if a.dims != b.dims {
        return invalid!("operands' shapes do not match: {:?} and {:?}", a.dims, b.dims);
    }
    let mut pairs = BookedVec::with_capacity(a.len().max(b.len()))?;
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let order = a.entry(i).cmp(b.entry(j));
        pairs.push((
            (order != Ordering::Greater).then_some(i),
            (order != Ordering::Less).then_some(j),
        ))?;
        i += usize::from(order != Ordering::Greater);
        j += usize::from(order != Ordering::Less);
    }
    pairs.extend((i..a.len()).map(|i| (Some(i), None)))?;
    pairs.extend((j..b.len()).map(|j| (None, Some(j))))?;
    Ok(pairs)
}

/// The indices of the entries.
fn indices(a: &Coo<'_>, b: &Coo<'_>, pairs: &[Pair]) -> Result<Tensor> {
    let entry = |pair: &Pair| match *pair {
        (Some(i), _) => a.entry(i),
        (None, Some(j)) => b.entry(j),
        (None, None) => &[],
    };
    let flat = BookedVec::collect(pairs.iter().flat_map(entry).copied())?;
    Ok(Tensor::from_slice(Shape::of(&[pairs.len(), a.rank()]), &flat)?)
}

fn element<T: Number>(values: &[T], at: Option<usize>) -> T {
    at.map_or_else(T::zero, |at| values[at])
}

struct Add;

impl Op for Add {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a_indices, a_values, a_shape, b_indices, b_values, b_shape, threshold] =
            arity(inputs)?;
        coo::require(a_indices, a_values, a_shape)?;
        coo::require(b_indices, b_values, b_shape)?;
        threshold.require_rank(0)?;
        b_values.require_dtype(a_values.dtype)?;
        let rank = coo::rank_dim(a_indices, a_shape);
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, rank]),
            Spec::new(a_values.dtype, [Dim::Unknown]),
            a_shape.clone(),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b, threshold) = (Coo::read(ctx, 0)?, Coo::read(ctx, 3)?, ctx.input(6));
        if a.rank() == 0 || b.rank() == 0 {
            return invalid!("Tensors must not be empty");
        }
        let mut pairs = pairs(&a, &b)?;
        let limit = number(threshold)?;
        let dtype = a.values.dtype();
        let mut sums = Tensor::zeros(dtype, Shape::of(&[pairs.len()]))?;
        let mut view = sums.view_mut().expect("a new plain tensor has one owner");
        for_any_number!(dtype, T => {
            let (x, y): (&[T], &[T]) = (a.values.as_slice(), b.values.as_slice());
            for (out, (i, j)) in view.as_mut_slice::<T>().iter_mut().zip(pairs.iter()) {
                pace(4)?;
                *out = element(x, *i).plus(element(y, *j));
            }
        });
        let sizes = magnitudes(sums.view())?;
        // What only one of the two has is kept, however small it is.
        let is_kept = |i: &usize| {
            let (a, b) = pairs[*i];
            a.is_none() || b.is_none() || limit <= sizes[*i]
        };
        let kept = BookedVec::collect((0..pairs.len()).filter(is_kept))?;
        pairs = BookedVec::collect(kept.iter().map(|i| pairs[*i]))?;
        ctx.set_output(0, indices(&a, &b, &pairs)?)?;
        ctx.set_output(1, super::gather::gather(sums.view(), &kept)?)?;
        ctx.set_output(2, Tensor::vector(a.dims)?)
    }
}

/// The only element of a tensor of real numbers.
#[allow(clippy::useless_conversion, reason = "one text for all floats")]
fn number(view: View<'_>) -> Result<f64> {
    if view.n_elements() != 1 {
        return invalid!("The magnitude threshold must be a scalar: got {}", view.shape());
    }
    Ok(match view.dtype() {
        dtype if dtype.is_float() => for_float!(dtype, T => f64::from(view.as_slice::<T>()[0])),
        dtype => for_integer!(dtype, T => view.as_slice::<T>()[0] as f64),
    })
}

/// The absolute values.
#[allow(clippy::useless_conversion, reason = "one text for all floats")]
fn magnitudes(view: View<'_>) -> Result<BookedVec<f64>> {
    Ok(match view.dtype() {
        DType::Complex64 => {
            BookedVec::collect(view.as_slice::<Complex<f32>>().iter().map(|x| f64::from(x.norm())))?
        }
        DType::Complex128 => {
            BookedVec::collect(view.as_slice::<Complex<f64>>().iter().map(|x| x.norm()))?
        }
        dtype if dtype.is_float() => for_float!(dtype, T => {
            BookedVec::collect(view.as_slice::<T>().iter().map(|x| f64::from(*x).abs()))?
        }),
        dtype => for_integer!(dtype, T => {
            BookedVec::collect(view.as_slice::<T>().iter().map(|x| (*x as f64).abs()))?
        }),
    })
}

struct Extreme {
    largest: bool,
}

impl Op for Extreme {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a_indices, a_values, a_shape, b_indices, b_values, b_shape] = arity(inputs)?;
        coo::require(a_indices, a_values, a_shape)?;
        coo::require(b_indices, b_values, b_shape)?;
        b_values.require_dtype(a_values.dtype)?;
        let rank = coo::rank_dim(a_indices, a_shape);
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, rank]),
            Spec::new(a_values.dtype, [Dim::Unknown]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b) = (Coo::read(ctx, 0)?, Coo::read(ctx, 3)?);
        if a.rank() == 0 || b.rank() == 0 {
            return invalid!("Tensors must not be empty");
        }
        a.check_inside()?;
        b.check_inside()?;
        let pairs = pairs(&a, &b)?;
        ctx.set_output(0, indices(&a, &b, &pairs)?)?;
        let dtype = a.values.dtype();
        let mut output = ctx.output(1, dtype, &Shape::of(&[pairs.len()]))?;
        for_number!(dtype, T => {
            let (x, y): (&[T], &[T]) = (a.values.as_slice(), b.values.as_slice());
            for (out, (i, j)) in output.as_mut_slice::<T>().iter_mut().zip(pairs.iter()) {
                pace(4)?;
                let (x, y) = (element(x, *i), element(y, *j));
                let first = if self.largest { x > y } else { x < y };
                *out = if first { x } else { y };
            }
        });
        Ok(())
    }
}
