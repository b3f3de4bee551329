//! `EditDistance`: how many insertions, deletions and replacements turn one sequence into another.
//!
//! Follows `edit_distance_op.cc` of TensorFlow.

use std::collections::BTreeMap;

use super::coo::{self, Coo, checked_shape};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("EditDistance", |attrs| {
    Ok(Box::new(EditDistance { normalizes: attrs.bool_or("normalize", true)? }))
});

struct EditDistance {
    /// Whether distances are divided by the length of the truth.
    normalizes: bool,
}

impl Op for EditDistance {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [h_indices, h_values, h_shape, t_indices, t_values, t_shape] = arity(inputs)?;
        coo::require(h_indices, h_values, h_shape)?;
        coo::require(t_indices, t_values, t_shape)?;
        t_values.require_dtype(h_values.dtype)?;
        let (Some(h_sizes), Some(t_sizes)) = (h_shape.ints(), t_shape.ints()) else {
            return Ok(vec![Spec::unknown(DType::F32)]);
        };
        let dims = group_dims(&h_sizes, &t_sizes)?;
        Ok(vec![Spec::new(DType::F32, dims.into_iter().map(Dim::Known))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (hypothesis, truth) = (Coo::read(ctx, 0)?, Coo::read(ctx, 3)?);
        let shape = checked_shape(DType::F32, group_dims(hypothesis.dims, truth.dims)?)?;
        let (hypotheses, truths) = (groups(&hypothesis)?, groups(&truth)?);
        let mut output = ctx.output(0, DType::F32, &shape)?;
        let out: &mut [f32] = output.as_mut_slice();
        out.fill(0.0);
        let strides = shape.strides();
        let place = |group: &[i64]| -> usize {
            group.iter().zip(&strides).map(|(at, stride)| *at as usize * stride).sum()
        };
        let none = Vec::new();
        let keys = hypotheses.keys().chain(truths.keys());
        for group in keys {
            let left = hypotheses.get(group).unwrap_or(&none);
            let right = truths.get(group).unwrap_or(&none);
            out[place(group)] = self.distance((&hypothesis, left), (&truth, right))?;
        }
        Ok(())
    }
}

impl EditDistance {
    fn distance(
        &self,
        (hypothesis, left): (&Coo<'_>, &[usize]),
        (truth, right): (&Coo<'_>, &[usize]),
    ) -> Result<f32> {
        let (a, b) = (hypothesis.values, truth.values);
        let n_edits = if a.dtype() == DType::String {
            let (a, b) = (a.strings(), b.strings());
            levenshtein(left, right, |i, j| a.get(i) == b.get(j))
        } else {
            for_width!(a.dtype(), T => {
                let (a, b) = (a.as_wide::<T>(), b.as_wide::<T>());
                levenshtein(left, right, |i, j| a[i] == b[j])
            })
        };
        Ok(match (self.normalizes, right.len()) {
            (false, _) => n_edits as f32,
            (true, 0) if n_edits == 0 => 0.0,
            (true, 0) => f32::INFINITY,
            (true, len) => n_edits as f32 / len as f32,
        })
    }
}

/// The dimensions of the groups: all but the last, as large as the larger of both.
fn group_dims(hypothesis: &[i64], truth: &[i64]) -> Result<Vec<i64>> {
    if hypothesis.len() != truth.len() || hypothesis.len() < 2 {
        return invalid!(
            "Expected hypothesis_shape and truth_shape of one length, at least 2, but they are {hypothesis:?} and {truth:?}"
        );
    }
    let pairs = hypothesis.iter().zip(truth).take(hypothesis.len() - 1);
    Ok(pairs.map(|(a, b)| *a.max(b)).collect())
}

/// The entries of each sequence, in order.
fn groups<'a>(sparse: &Coo<'a>) -> Result<BTreeMap<&'a [i64], Vec<usize>>> {
    let mut groups: BTreeMap<&'a [i64], Vec<usize>> = BTreeMap::new();
    for (i, index) in sparse.entries().enumerate() {
        coo::check_inside(index, sparse.dims, i)?;
        groups.entry(&index[..index.len() - 1]).or_default().push(i);
    }
    Ok(groups)
}

fn levenshtein(left: &[usize], right: &[usize], equal: impl Fn(usize, usize) -> bool) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (n, i) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (m, j) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(!equal(*i, *j));
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
