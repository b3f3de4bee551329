//! `ResourceScatterUpdate` and its kin, and `ResourceGatherNd`: rows of a variable by index.

use super::handle::{variable, variable_spec};
use super::variable::writable;
use crate::array::gather_nd::{gather_nd, infer_gather_nd};
use crate::array::nd::{Policy, Slices};
use crate::array::scatter_nd::{check_updates, combine_slices};
use crate::combine::{Combine, Number as _, check_divisors, for_combined};
use crate::facts::VariableAccess;
use crate::prelude::*;

pub(super) const GATHER_ND: OpDef =
    OpDef::of_kind("ResourceGatherNd", Kind::Reads, RowRule::Mixed, |attrs| {
        Ok(Box::new(GatherNd { dtype: attrs.dtype("dtype")? }))
    })
    .uses(VariableAccess::GatherNd);
pub(super) const UPDATE: OpDef =
    OpDef::of_kind("ResourceScatterUpdate", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Update, by: By::Rows }))
    });
pub(super) const ADD: OpDef =
    OpDef::of_kind("ResourceScatterAdd", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Add, by: By::Rows }))
    });
pub(super) const SUB: OpDef =
    OpDef::of_kind("ResourceScatterSub", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Sub, by: By::Rows }))
    });
pub(super) const MUL: OpDef =
    OpDef::of_kind("ResourceScatterMul", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Mul, by: By::Rows }))
    });
pub(super) const DIV: OpDef =
    OpDef::of_kind("ResourceScatterDiv", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Div, by: By::Rows }))
    });
pub(super) const MIN: OpDef =
    OpDef::of_kind("ResourceScatterMin", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Min, by: By::Rows }))
    });
pub(super) const MAX: OpDef =
    OpDef::of_kind("ResourceScatterMax", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Scatter { how: Combine::Max, by: By::Rows }))
    });
pub(super) const ND_UPDATE: OpDef =
    OpDef::of_kind("ResourceScatterNdUpdate", Kind::Writes, RowRule::Mixed, |attrs| {
        Ok(Box::new(Scatter { how: Combine::Update, by: By::Vectors(Policy::of(attrs)?) }))
    });
pub(super) const ND_ADD: OpDef =
    OpDef::of_kind("ResourceScatterNdAdd", Kind::Writes, RowRule::Mixed, |attrs| {
        Ok(Box::new(Scatter { how: Combine::Add, by: By::Vectors(Policy::of(attrs)?) }))
    });
pub(super) const ND_SUB: OpDef =
    OpDef::of_kind("ResourceScatterNdSub", Kind::Writes, RowRule::Mixed, |attrs| {
        Ok(Box::new(Scatter { how: Combine::Sub, by: By::Vectors(Policy::of(attrs)?) }))
    });

pub(super) const ND_MIN: OpDef =
    OpDef::of_kind("ResourceScatterNdMin", Kind::Writes, RowRule::Mixed, |attrs| {
        Ok(Box::new(Scatter { how: Combine::Min, by: By::Vectors(Policy::of(attrs)?) }))
    });
pub(super) const ND_MAX: OpDef =
    OpDef::of_kind("ResourceScatterNdMax", Kind::Writes, RowRule::Mixed, |attrs| {
        Ok(Box::new(Scatter { how: Combine::Max, by: By::Vectors(Policy::of(attrs)?) }))
    });

struct GatherNd {
    dtype: DType,
}

impl Op for GatherNd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, indices] = arity(inputs)?;
        Ok(vec![infer_gather_nd(&variable_spec(handle, self.dtype), indices)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let params = variable(ctx, 0)?.value()?;
        gather_nd(ctx, params.view(), ctx.input(1), Policy::Refuse)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Slices::bytes(&inputs[1])
    }
}

/// Combines rows of a variable with updates.
struct Scatter {
    how: Combine,
    by: By,
}

/// The meaning of the second input.
#[derive(Clone, Copy)]
enum By {
    /// Numbers of rows; one update may serve all.
    Rows,
    /// Index vectors.
    Vectors(Policy),
}

impl Op for Scatter {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _, _] = arity(inputs)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (variable, indices, updates) = (variable(ctx, 0)?, ctx.input(1), ctx.input(2));
        let how = self.how;
        let by = self.by;
        check_divisors(how, &updates)?;
        let mut scratch = ctx.scratch();
        variable.change(|value| {
            if value.dtype() != updates.dtype() || !value.dtype().is_plain() {
                let (want, got) = (value.dtype(), updates.dtype());
                return invalid!("cannot scatter {got} into a variable of {want}");
            }
            let slices = match by {
                By::Rows => row_slices(&indices, value.shape(), &mut scratch)?,
                By::Vectors(policy) => {
                    Slices::of(&indices, value.shape(), ("", policy), &mut scratch)?
                }
            };
            match by {
                By::Rows => check_rows(&indices, &updates, value.shape())?,
                By::Vectors(_) => check_updates(&indices, &updates, value.shape(), slices.depth)?,
            }
            let mut view = writable(value)?;
            if how == Combine::Update {
                return replace(&mut view, &slices, &updates);
            }
            for_combined!(how, view.dtype(), T => {
                let new = updates.as_slice::<T>();
                match new {
                    [one] if slices.len > 0 && updates.shape().rank() == 0 => {
                        let out = view.as_mut_slice::<T>();
                        for place in slices.places().flatten() {
                            pace(16)?;
                            for x in &mut out[place] {
                                T::combine(how, std::slice::from_mut(x), &[*one]);
                            }
                        }
                    }
                    new => combine_slices::<T>(how, &slices, view.as_mut_slice(), new),
                }
            });
            Ok(())
        })?;
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let indices = inputs[1].shape().unwrap_or_default();
        match self.by {
            By::Rows => Scratch::bytes_of::<usize>(indices.n_elements()),
            By::Vectors(_) => Slices::bytes(&inputs[1]),
        }
    }
}

/// The rows that numbers name.
fn row_slices<'a>(
    indices: &View<'_>,
    shape: &Shape,
    scratch: &mut Scratch<'a>,
) -> Result<Slices<'a>> {
    let Some((n_rows, inner)) = shape.split_first() else {
        return invalid!("a scalar variable has no rows");
    };
    let len: usize = inner.iter().product();
    let mut starts = scratch.part(indices.n_elements())?;
    for (i, start) in starts.iter_mut().enumerate() {
        pace(8)?;
        let row = int_at(indices, i)?;
        let Some(row) = usize::try_from(row).ok().filter(|row| row < n_rows) else {
            // The text is TensorFlow's (`resource_variable_ops.cc`).
            let place = crate::array::gather::place_of(i, indices.shape());
            return invalid!("indices{place} = {row} is not in [0, {n_rows})");
        };
        *start = row * len;
    }
    Ok(Slices::at(starts, len))
}

fn check_rows(indices: &View<'_>, updates: &View<'_>, shape: &Shape) -> Result<()> {
    let fits = updates.shape().iter().eq(indices.shape().iter().chain(&shape[1..]));
    // Where there are no indices TensorFlow looks only at the rank.
    let is_rank = updates.shape().rank() + 1 == indices.shape().rank() + shape.rank();
    let fits = fits || is_rank && indices.n_elements() == 0;
    if !fits && updates.shape().rank() != 0 {
        // The text is TensorFlow's (`resource_variable_ops.cc`).
        return invalid!(
            "shape of indices ({}) is not compatible with the shape of updates ({})",
            indices.shape(),
            updates.shape()
        );
    }
    Ok(())
}

/// Copies updates, or one update again and again, to slices.
fn replace(view: &mut ViewMut<'_>, slices: &Slices<'_>, updates: &View<'_>) -> Result<()> {
    let is_scalar = updates.shape().rank() == 0;
    for_width!(view.dtype(), T => {
        let (out, new) = (view.as_wide_mut::<T>(), updates.as_wide::<T>());
        for (i, place) in slices.places().enumerate() {
            pace(16)?;
            let Some(place) = place else { continue };
            let to = &mut out[place];
            match is_scalar {
                true => to.fill(new[0]),
                false => to.copy_from_slice(&new[i * slices.len..(i + 1) * slices.len]),
            }
        }
    });
    Ok(())
}
