//! `UnsortedSegmentSum` and its kin: ids in any order, with as many dimensions as they like.

use super::{
    Empty, SegmentPlan, SegmentWay, n_segments, n_segments_dim, scratch_bytes, segments_shape,
    segments_spec,
};
use crate::prelude::*;

struct Unsorted(SegmentWay);

pub(super) fn build(way: SegmentWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(Unsorted(way)))
}

impl Op for Unsorted {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, ids, n] = arity(inputs)?;
        let n = n_segments_dim(n)?;
        let (Some(own), Some(dims)) = (data.dims(), ids.dims()) else {
            return Ok(vec![Spec::unknown(data.dtype)]);
        };
        let mut pairs = dims.iter().zip(own);
        if dims.len() > own.len() || pairs.any(|(id, own)| id.differs(own)) {
            return invalid!("data.shape = {data} does not start with segment_ids.shape = {ids}");
        }
        Ok(vec![segments_spec(data, dims.len(), n)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (data, ids) = (ctx.input(0), ctx.input(1));
        let n = n_segments(ctx.input(2))?;
        let (own, dims) = (data.shape(), ids.shape());
        if !own.starts_with(dims) {
            return invalid!("data.shape = {own} does not start with segment_ids.shape = {dims}");
        }
        let row = &own[dims.rank()..];
        let mut scratch = ctx.scratch();
        let mut rows = scratch.part(ids.n_elements())?;
        let mut n_rows = 0;
        for at in 0..ids.n_elements() {
            match usize::try_from(int_at(&ids, at)?) {
                // Rows of negative ids are dropped.
                Err(_) => {}
                Ok(id) if id < n => {
                    rows[n_rows] = [at, id];
                    n_rows += 1;
                }
                Ok(id) => {
                    return invalid!("segment_ids[{at}] = {id} is out of range [0, {n})");
                }
            }
        }
        let shape = segments_shape(n, row)?;
        let width = row.iter().product();
        let plan =
            SegmentPlan { rows: &rows[..n_rows], n_segments: n, width, empty: Empty::Neutral };
        plan.run(ctx, self.0, &shape, scratch)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        scratch_bytes(&inputs[1], &outputs[0])
    }
}
