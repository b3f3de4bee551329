//! `SegmentSum` and its kin: each row goes to the segment that its id names, and ids never fall.

use super::{Empty, Plan, Way, segments_shape, segments_spec, sorted_ids};
use crate::prelude::*;

/// As many segments as the last id says.
struct Sorted(Way);

pub(super) fn build(way: Way) -> Result<Box<dyn Op>> {
    Ok(Box::new(Sorted(way)))
}

impl Op for Sorted {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, ids] = arity(inputs)?;
        data.require_rank_at_least(1)?;
        ids.require_rank(1)?;
        let n = ids.as_constant().map(|ids| sorted_ids(ids.view())).transpose()?;
        let n = n.map(|ids| Dim::of(ids.last().map_or(0, |last| last.saturating_add(1))));
        Ok(vec![segments_spec(data, 1, n)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let ids = sorted_ids(ctx.input(1))?;
        let n = ids.last().map_or(0, |last| last.saturating_add(1));
        run(ctx, self.0, &ids, n)
    }
}

fn run(ctx: &mut Ctx<'_>, way: Way, ids: &[usize], n: usize) -> Result<()> {
    let data = ctx.input(0);
    let Some((n_rows, row)) = data.shape().split_first() else {
        return invalid!("input must be at least rank 1");
    };
    if *n_rows != ids.len() {
        return invalid!("segment_ids should be the same size as dimension 0 of input");
    }
    let shape = segments_shape(n, row)?;
    let rows = ids.iter().enumerate().map(|(row, segment)| (row, *segment)).collect();
    let plan = Plan { rows, n_segments: n, width: row.iter().product(), empty: Empty::Zero };
    plan.run(ctx, way, &shape)
}
