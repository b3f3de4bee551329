//! `GatherNd`: slices of a tensor picked by index vectors.

use super::nd::{Policy, Slices};
use crate::prelude::*;

pub(super) const GATHER_ND: OpDef = OpDef::pure("GatherNd", RowRule::GatherNd, |attrs| {
    Ok(Box::new(GatherNd { policy: Policy::of(attrs)? }))
});

struct GatherNd {
    policy: Policy,
}

impl Op for GatherNd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [params, indices] = arity(inputs)?;
        Ok(vec![infer_gather_nd(params, indices)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        gather_nd(ctx, ctx.input(0), ctx.input(1), self.policy)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Slices::bytes(&inputs[1])
    }
}

/// The spec of what index vectors pick.
pub(crate) fn infer_gather_nd(params: &Spec, indices: &Spec) -> Result<Spec> {
    indices.require_rank_at_least(1)?;
    let (Some(dims), Some(index)) = (params.dims(), indices.dims()) else {
        return Ok(Spec::unknown(params.dtype));
    };
    let (depth, outer) = index.split_last().expect("the rank is at least one");
    let Some(depth) = depth.size() else { return Ok(Spec::unknown(params.dtype)) };
    let Some(inner) = dims.get(depth..) else {
        return invalid!(
            "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
            dims.len()
        );
    };
    Ok(Spec::new(params.dtype, outer.iter().chain(inner).cloned()))
}

/// Makes output 0: the slices of `params` that `indices` pick.
pub(crate) fn gather_nd(
    ctx: &mut Ctx<'_>,
    params: View<'_>,
    indices: View<'_>,
    policy: Policy,
) -> Result<()> {
    if params.shape().rank() == 0 || indices.shape().rank() == 0 {
        return invalid!("params and indices must be at least vectors");
    }
    let n_slices: usize = indices.shape()[..indices.shape().rank() - 1].iter().product();
    if params.n_elements() == 0 && n_slices > 0 {
        // The text is TensorFlow's (`gather_nd_op.cc`).
        let shape = params.shape();
        return invalid!(
            "Requested more than 0 entries, but params is empty. Params shape: {shape}"
        );
    }
    let slices = Slices::of(&indices, params.shape(), ("param ", policy), &mut ctx.scratch())?;
    let outer = indices.shape()[..indices.shape().rank() - 1].iter();
    let inner = params.shape()[slices.depth..].iter();
    let shape = Shape::checked(outer.chain(inner).map(|dim| *dim as i64))?;
    rearrange(ctx, 0, &[params], &shape, &slices)
}

impl Move for Slices<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        for (place, to) in self.places().zip(output.chunks_exact_mut(self.len)) {
            pace(4 + self.len)?;
            match place {
                Some(place) => to.copy_from_slice(&inputs[0][place]),
                None => to.fill(T::zeroed()),
            }
        }
        Ok(())
    }
}
