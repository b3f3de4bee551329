//! `SparseSoftmax`: the softmax of the entries of each row.
//!
//! Follows `sparse_softmax_op.cc` of TensorFlow.

use num_traits::Float;

use super::coo::{self, Coo};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("SparseSoftmax", |_| Ok(Box::new(Softmax)));

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
        let dtype = sparse.values.dtype();
        let mut output = ctx.output(0, dtype, &Shape::of(&[sparse.len()]))?;
        // As TensorFlow, the results are in the order of the indices, whatever that of the entries.
        let mut order: Vec<usize> = (0..sparse.len()).collect();
        order.sort_by(|a, b| sparse.entry(*a).cmp(sparse.entry(*b)));
        let row = |i: usize| &sparse.entry(order[i])[..rank - 1];
        let mut ends = Vec::new();
        for i in 1..=sparse.len() {
            let ends_here = i == sparse.len() || row(i) != row(i - 1);
            if ends_here {
                ends.push(i);
            }
        }
        for_float!(dtype, T => {
            let values: &[T] = sparse.values.as_slice();
            let values: Vec<T> = order.iter().map(|i| values[*i]).collect();
            rows::<T>(&values, &ends, output.as_mut_slice());
        });
        Ok(())
    }
}

fn rows<T: Float>(values: &[T], ends: &[usize], out: &mut [T]) {
    let mut start = 0;
    for end in ends {
        let (row, out) = (&values[start..*end], &mut out[start..*end]);
        let max = row.iter().copied().fold(T::neg_infinity(), T::max);
        let mut sum = T::zero();
        for (x, p) in row.iter().zip(&mut *out) {
            *p = (*x - max).exp();
            sum = sum + *p;
        }
        out.iter_mut().for_each(|p| *p = *p / sum);
        start = *end;
    }
}
