//! `SparseSoftmax`: the softmax of the entries of each row.
//!
//! Follows `sparse_softmax_op.cc` of TensorFlow.

use num_traits::Float;

use super::coo::{self, Coo};
use crate::order::sort_by;
use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("SparseSoftmax", RowRule::Mixed, |_| Ok(Box::new(Softmax)));

struct Softmax;

impl Op for Softmax {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        Ok(vec![Spec::new(values.dtype, [coo::n_entries_dim(indices, values)])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let rank = sparse.rank();
        if rank < 2 {
            return invalid!("Input should have rank >= 2, but received shape: {:?}", sparse.dims);
        }
        if let Some(negative) = sparse.dims.iter().find(|dim| **dim < 0) {
            return invalid!("Expected shape dimensions to be non-negative, got {negative}");
        }
        let n_elements = sparse.dims.iter().try_fold(1i64, |n, dim| n.checked_mul(*dim));
        if n_elements.is_none() {
            return invalid!("Encountered overflow when multiplying {:?}", sparse.dims);
        }
        let dtype = sparse.values.dtype();
        let mut order = ctx.scratch().part::<usize>(sparse.len())?;
        let mut output = ctx.output(0, dtype, &Shape::of(&[sparse.len()]))?;
        // As TensorFlow, the results are in the order of the indices, whatever that of the entries.
        order.iter_mut().enumerate().for_each(|(i, at)| *at = i);
        sort_by(&mut order, &mut |a, b| sparse.entry(*a).cmp(sparse.entry(*b)).then(a.cmp(b)))?;
        let row = |i: usize| &sparse.entry(order[i])[..rank - 1];
        let ends = (1..=sparse.len()).filter(|i| *i == sparse.len() || row(*i) != row(*i - 1));
        for_float!(dtype, T => {
            let (values, out): (&[T], &mut [T]) = (sparse.values.as_slice(), output.as_mut_slice());
            out.iter_mut().zip(order.iter()).for_each(|(out, i)| *out = values[*i]);
            rows::<T>(out, ends);
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_of::<usize>(inputs[1].shape().map_or(0, |shape| shape.n_elements()))
    }
}

/// Makes of each row of values its softmax.
fn rows<T: Float>(values: &mut [T], ends: impl Iterator<Item = usize>) {
    let mut start = 0;
    for end in ends {
        if is_stopped(32) {
            return;
        }
        let row = &mut values[start..end];
        let max = row.iter().copied().fold(T::neg_infinity(), T::max);
        let mut sum = T::zero();
        for x in &mut *row {
            *x = (*x - max).exp();
            sum = sum + *x;
        }
        row.iter_mut().for_each(|x| *x = *x / sum);
        start = end;
    }
}
