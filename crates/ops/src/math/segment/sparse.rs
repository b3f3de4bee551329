//! `SparseSegmentSum` and its kin: rows are picked by index first, as in an embedding of a bag.

use super::{
    Empty, SegmentPlan, SegmentWay, n_known, n_segments, n_segments_dim, n_sorted, scratch_bytes,
    segments_shape, segments_spec, sorted_ids,
};
use crate::prelude::*;

/// As many segments as the last id says.
struct Sparse(SegmentWay);
/// As many segments as an input says.
struct SparseWithN(SegmentWay);

pub(super) fn build(way: SegmentWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(Sparse(way)))
}

pub(super) fn build_with_n(way: SegmentWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(SparseWithN(way)))
}

impl Op for Sparse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, indices, ids] = arity(inputs)?;
        check(data, indices, ids)?;
        Ok(vec![segments_spec(data, 1, n_known(ids)?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let mut scratch = ctx.scratch();
        let ids = sorted_ids(&ctx.input(2), &mut scratch)?;
        run(ctx, self.0, (&ids, n_sorted(&ids)), scratch)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        scratch_bytes(&inputs[2], &outputs[0])
    }
}

impl Op for SparseWithN {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, indices, ids, n] = arity(inputs)?;
        check(data, indices, ids)?;
        Ok(vec![segments_spec(data, 1, n_segments_dim(n)?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let mut scratch = ctx.scratch();
        let ids = sorted_ids(&ctx.input(2), &mut scratch)?;
        let n = n_segments(ctx.input(3))?;
        if let Some(last) = ids.last().filter(|last| **last >= n) {
            return invalid!("segment id {last} is out of range [0, {n})");
        }
        run(ctx, self.0, (&ids, n), scratch)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        scratch_bytes(&inputs[2], &outputs[0])
    }
}

fn check(data: &Spec, indices: &Spec, ids: &Spec) -> Result<()> {
    data.require_rank_at_least(1)?;
    indices.require_rank(1)?;
    ids.require_rank(1)
}

fn run(
    ctx: &mut Ctx<'_>,
    way: SegmentWay,
    (ids, n): (&[usize], usize),
    mut scratch: Scratch<'_>,
) -> Result<()> {
    let (data, indices) = (ctx.input(0), ctx.input(1));
    let Some((n_rows, row)) = data.shape().split_first() else {
        return invalid!("input must be at least rank 1");
    };
    let is_integer = matches!(indices.dtype(), DType::I32 | DType::I64);
    if !is_integer || indices.n_elements() != ids.len() {
        return invalid!("segment_ids and indices should have same size");
    }
    let mut rows = scratch.part(ids.len())?;
    for (at, (row, segment)) in rows.iter_mut().zip(ids).enumerate() {
        let index = int_at(&indices, at)?;
        match usize::try_from(index) {
            Ok(index) if index < *n_rows => *row = [index, *segment],
            _ => return invalid!("Bad: indices[{at}] == {index} out of range [0, {n_rows})"),
        }
    }
    let shape = segments_shape(n, row)?;
    let width = row.iter().product();
    let plan = SegmentPlan { rows: &rows, n_segments: n, width, empty: Empty::Zero };
    plan.run(ctx, way, &shape, scratch)
}
