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
        let dtype = sparse.values.dtype();
        let mut output = ctx.output(0, dtype, &Shape::of(&[sparse.len()]))?;
        // Entries are sorted, so those of a row are neighbours.
        let row = |i: usize| &sparse.entry(i)[..rank - 1];
        let ends = (1..=sparse.len()).filter(|i| *i == sparse.len() || row(*i) != row(*i - 1));
        for_float!(dtype, T => {
            rows::<T>(sparse.values.as_slice(), ends, output.as_mut_slice());
        });
        Ok(())
    }
}

fn rows<T: Float>(values: &[T], ends: impl Iterator<Item = usize>, out: &mut [T]) {
    let mut start = 0;
    for end in ends {
        let (row, out) = (&values[start..end], &mut out[start..end]);
        let max = row.iter().copied().fold(T::neg_infinity(), T::max);
        let mut sum = T::zero();
        for (x, p) in row.iter().zip(&mut *out) {
            *p = (*x - max).exp();
            sum = sum + *p;
        }
        out.iter_mut().for_each(|p| *p = *p / sum);
        start = end;
    }
}
