//! `SegmentSum` and its kin: each row goes to the segment that its id names, and ids never fall.

use super::{
    Empty, SegmentPlan, SegmentWay, n_known, n_sorted, scratch_bytes, segments_shape,
    segments_spec, sorted_ids,
};
use crate::prelude::*;

/// As many segments as the last id says.
struct Sorted(SegmentWay);

pub(super) fn build(way: SegmentWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(Sorted(way)))
}

impl Op for Sorted {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, ids] = arity(inputs)?;
        data.require_rank_at_least(1)?;
        ids.require_rank(1)?;
        Ok(vec![segments_spec(data, 1, n_known(ids)?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let mut scratch = ctx.scratch();
        let ids = sorted_ids(&ctx.input(1), &mut scratch)?;
        run(ctx, self.0, &ids, scratch)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        scratch_bytes(&inputs[1], &outputs[0])
    }
}

fn run(ctx: &mut Ctx<'_>, way: SegmentWay, ids: &[usize], mut scratch: Scratch<'_>) -> Result<()> {
    let (n, data) = (n_sorted(ids), ctx.input(0));
    let Some((n_rows, row)) = data.shape().split_first() else {
        return invalid!("input must be at least rank 1");
    };
    if *n_rows != ids.len() {
        return invalid!("segment_ids should be the same size as dimension 0 of input");
    }
    let shape = segments_shape(n, row)?;
    let mut rows = scratch.part(ids.len())?;
    rows.iter_mut().zip(ids).enumerate().for_each(|(i, (row, id))| *row = [i, *id]);
    let width = row.iter().product();
    let plan = SegmentPlan { rows: &rows, n_segments: n, width, empty: Empty::Zero };
    plan.run(ctx, way, &shape, scratch)
}
