//! `SparseSegmentSum` and its kin: rows are picked by index first, as in an embedding of a bag.

use super::{
    Empty, Plan, Way, n_segments, n_segments_dim, segments_shape, segments_spec, sorted_ids,
};
use crate::prelude::*;

/// As many segments as the last id says.
struct Sparse(Way);
/// As many segments as an input says.
struct SparseWithN(Way);

pub(super) fn build(way: Way) -> Result<Box<dyn Op>> {
    Ok(Box::new(Sparse(way)))
}

pub(super) fn build_with_n(way: Way) -> Result<Box<dyn Op>> {
    Ok(Box::new(SparseWithN(way)))
}

impl Op for Sparse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, indices, ids] = arity(inputs)?;
        check(data, indices, ids)?;
        let n = ids.as_constant().map(|ids| sorted_ids(ids.view())).transpose()?;
        let n = n.map(|ids| Dim::of(ids.last().map_or(0, |last| last.saturating_add(1))));
        Ok(vec![segments_spec(data, 1, n)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let ids = sorted_ids(ctx.input(2))?;
        let n = ids.last().map_or(0, |last| last.saturating_add(1));
        run(ctx, self.0, &ids, n)
    }
}

impl Op for SparseWithN {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, indices, ids, n] = arity(inputs)?;
        check(data, indices, ids)?;
        Ok(vec![segments_spec(data, 1, n_segments_dim(n)?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let ids = sorted_ids(ctx.input(2))?;
        let n = n_segments(ctx.input(3))?;
        if let Some(last) = ids.last().filter(|last| **last >= n) {
            return invalid!("segment id {last} is out of range [0, {n})");
        }
        run(ctx, self.0, &ids, n)
    }
}

fn check(data: &Spec, indices: &Spec, ids: &Spec) -> Result<()> {
    data.require_rank_at_least(1)?;
    indices.require_rank(1)?;
    ids.require_rank(1)
}

fn run(ctx: &mut Ctx<'_>, way: Way, ids: &[usize], n: usize) -> Result<()> {
    let (data, indices) = (ctx.input(0), ctx.input(1));
    let Some((n_rows, row)) = data.shape().split_first() else {
        return invalid!("input must be at least rank 1");
    };
    let Some(list) = indices.to_i64().filter(|list| list.len() == ids.len()) else {
        return invalid!("segment_ids and indices should have same size");
    };
    let mut rows = Vec::with_capacity(ids.len());
    for (at, (index, segment)) in list.into_iter().zip(ids).enumerate() {
        match usize::try_from(index) {
            Ok(index) if index < *n_rows => rows.push((index, *segment)),
            _ => return invalid!("Bad: indices[{at}] == {index} out of range [0, {n_rows})"),
        }
    }
    let shape = segments_shape(n, row)?;
    let plan = Plan { rows, n_segments: n, width: row.iter().product(), empty: Empty::Zero };
    plan.run(ctx, way, &shape)
}
