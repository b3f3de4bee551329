//! `ScatterNd` and the `TensorScatter` ops: slices of a tensor changed by index vectors.

use super::nd::{Policy, Slices};
use crate::combine::{Combine, Number, for_combined};
use crate::prelude::*;

pub(super) const SCATTER_ND: OpDef = OpDef::pure("ScatterNd", RowRule::Mixed, |attrs| {
    Ok(Box::new(ScatterNd { policy: Policy::of(attrs)? }))
});
pub(super) const UPDATE: OpDef = OpDef::pure("TensorScatterUpdate", RowRule::Mixed, |attrs| {
    Scatter::build(attrs, Combine::Update)
});
pub(super) const ADD: OpDef =
    OpDef::pure("TensorScatterAdd", RowRule::Mixed, |attrs| Scatter::build(attrs, Combine::Add));
pub(super) const SUB: OpDef =
    OpDef::pure("TensorScatterSub", RowRule::Mixed, |attrs| Scatter::build(attrs, Combine::Sub));
pub(super) const MIN: OpDef =
    OpDef::pure("TensorScatterMin", RowRule::Mixed, |attrs| Scatter::build(attrs, Combine::Min));
pub(super) const MAX: OpDef =
    OpDef::pure("TensorScatterMax", RowRule::Mixed, |attrs| Scatter::build(attrs, Combine::Max));

/// Sums of updates in a tensor of zeros.
struct ScatterNd {
    policy: Policy,
}

impl Op for ScatterNd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, updates, shape] = arity(inputs)?;
        indices.require_rank_at_least(1)?;
        shape.require_rank(1)?;
        let Some(sizes) = sizes_of(shape) else {
            let rank = shape.dims().and_then(|dims| dims[0].size());
            return Ok(vec![spec_of_rank(updates.dtype, rank)]);
        };
        Ok(vec![Spec::new(updates.dtype, sizes)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, updates) = (ctx.input(0), ctx.input(1));
        let shape = Shape::checked(ints(&ctx.input(2))?)?;
        let is_empty = shape.rank() == 0 || shape.n_elements() == 0;
        if is_empty && (indices.n_elements() > 0 || updates.n_elements() > 0) {
            return invalid!("Indices and updates specified for empty output tensor");
        }
        let slices = Slices::of(&indices, &shape, ("", self.policy), &mut ctx.scratch())?;
        check_updates(&indices, &updates, &shape, slices.depth)?;
        let dtype = updates.dtype();
        if dtype == DType::Bool {
            return rearrange(ctx, 0, &[updates], &shape, &Any { slices });
        }
        let mut output = ctx.output(0, dtype, &shape)?;
        output.bytes().fill(0);
        for_combined!(Combine::Add, dtype, T => {
            combine_slices::<T>(Combine::Add, &slices, output.as_mut_slice(), updates.as_slice());
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Slices::bytes(&inputs[0])
    }
}

/// Sums of bools: whether any is true.
struct Any<'a> {
    slices: Slices<'a>,
}

impl Move for Any<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.fill(T::zeroed());
        if self.slices.len == 0 {
            return Ok(());
        }
        for (place, new) in self.slices.places().zip(inputs[0].chunks_exact(self.slices.len)) {
            let Some(place) = place else { continue };
            for (x, y) in output[place].iter_mut().zip(new) {
                if bytemuck::bytes_of(y)[0] != 0 {
                    *x = *y;
                }
            }
        }
        Ok(())
    }
}

/// Fails unless updates have the shape of the slices that indices name.
pub(crate) fn check_updates(
    indices: &View<'_>,
    updates: &View<'_>,
    shape: &Shape,
    depth: usize,
) -> Result<()> {
    let outer = &indices.shape()[..indices.shape().rank() - 1];
    let fits = updates.shape().iter().eq(outer.iter().chain(&shape[depth..]));
    if !fits {
        // The text is TensorFlow's (`scatter_nd_op.cc`).
        return invalid!(
            "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got \
             updates.shape: {}, indices.shape: {}, params_shape: {shape}",
            updates.shape(),
            indices.shape()
        );
    }
    Ok(())
}

/// Combines each slice with its update, in order.
pub(crate) fn combine_slices<T: Number>(
    how: Combine,
    slices: &Slices<'_>,
    output: &mut [T],
    updates: &[T],
) {
    if slices.len == 0 {
        return;
    }
    for (place, new) in slices.places().zip(updates.chunks_exact(slices.len)) {
        if is_stopped(4 + slices.len) {
            return;
        }
        if let Some(place) = place {
            T::combine(how, &mut output[place], new);
        }
    }
}

/// A copy of a tensor with some slices combined with updates.
struct Scatter {
    how: Combine,
    policy: Policy,
}

impl Scatter {
    fn build(attrs: &Attrs<'_>, how: Combine) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { how, policy: Policy::of(attrs)? }))
    }
}

impl Op for Scatter {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [tensor, indices, _] = arity(inputs)?;
        tensor.require_rank_at_least(1)?;
        indices.require_rank_at_least(1)?;
        Ok(vec![tensor.with_dtype(tensor.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (tensor, indices, updates) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if tensor.n_elements() == 0 && (indices.n_elements() > 0 || updates.n_elements() > 0) {
            return invalid!("Indices and updates specified for empty output shape");
        }
        let slices = Slices::of(&indices, tensor.shape(), ("", self.policy), &mut ctx.scratch())?;
        check_updates(&indices, &updates, tensor.shape(), slices.depth)?;
        if self.how == Combine::Update {
            let replaced = Replaced { slices };
            return rearrange(ctx, 0, &[tensor, updates], tensor.shape(), &replaced);
        }
        if updates.dtype() != tensor.dtype() {
            return invalid!("expected {} but got {}", tensor.dtype(), updates.dtype());
        }
        let how = self.how;
        for_combined!(how, tensor.dtype(), T => {
            let mut output = ctx.output(0, tensor.dtype(), tensor.shape())?;
            output.bytes().copy_from_slice(tensor.bytes());
            combine_slices::<T>(how, &slices, output.as_mut_slice(), updates.as_slice());
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Slices::bytes(&inputs[1])
    }
}

/// The first input with slices from the second.
struct Replaced<'a> {
    slices: Slices<'a>,
}

impl Move for Replaced<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.copy_from_slice(inputs[0]);
        let len = self.slices.len;
        if len == 0 {
            return Ok(());
        }
        for (place, new) in self.slices.places().zip(inputs[1].chunks_exact(len)) {
            if let Some(place) = place {
                output[place].copy_from_slice(new);
            }
        }
        Ok(())
    }
}
