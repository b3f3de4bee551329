//! `UnsortedSegmentSum` and its kin: ids in any order, with as many dimensions as they like.

use super::{Empty, Plan, Way, n_segments, n_segments_dim, segments_shape, segments_spec};
use crate::prelude::*;

struct Unsorted(Way);

pub(super) fn build(way: Way) -> Result<Box<dyn Op>> {
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
        let list = match ids.dtype() {
            DType::I16 => ids.as_slice::<i16>().iter().map(|id| i64::from(*id)).collect(),
            _ => ints(&ids)?,
        };
        let row = &own[dims.rank()..];
        let mut rows = Vec::with_capacity(list.len());
        for (at, id) in list.into_iter().enumerate() {
            match usize::try_from(id) {
                // Rows of negative ids are dropped.
                Err(_) => {}
                Ok(id) if id < n => rows.push((at, id)),
                Ok(id) => {
                    return invalid!("segment_ids[{at}] = {id} is out of range [0, {n})");
                }
            }
        }
        let shape = segments_shape(n, row)?;
        let width = row.iter().product();
        let plan = Plan { rows, n_segments: n, width, empty: Empty::Neutral };
        plan.run(ctx, self.0, &shape)
    }
}
