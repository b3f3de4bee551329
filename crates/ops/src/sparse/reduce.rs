//! `SparseReduceSum` and `SparseReduceMax`: sparse tensors reduced to dense ones.
//!
//! Follows `sparse_reduce_op.cc` of TensorFlow.

use std::collections::BTreeMap;

use super::coo::{self, Coo};
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const SUM: OpDef = OpDef::pure("SparseReduceSum", |attrs| build(attrs, Way::Sum));
pub(super) const MAX: OpDef = OpDef::pure("SparseReduceMax", |attrs| build(attrs, Way::Max));

fn build(attrs: &Attrs<'_>, way: Way) -> Result<Box<dyn Op>> {
    Ok(Box::new(Reduce { way, keep_dims: attrs.bool_or("keep_dims", false)? }))
}

#[derive(Clone, Copy)]
enum Way {
    Sum,
    Max,
}

struct Reduce {
    way: Way,
    keep_dims: bool,
}

impl Op for Reduce {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, axes] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        let (Some(sizes), Some(axes)) = (shape.sizes(), axes.ints()) else {
            return Ok(vec![Spec::unknown(values.dtype)]);
        };
        let axes = normalise(&axes, sizes.len())?;
        Ok(vec![Spec::new(values.dtype, self.kept(&sizes, &axes, &Dim::Known(1)))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let Some(axes) = ctx.input(3).to_i64() else {
            return invalid!("reduction_axes must be int32");
        };
        let axes = normalise(&axes, sparse.rank())?;
        let dtype = sparse.values.dtype();
        let shape = coo::checked_shape(dtype, self.kept(sparse.dims, &axes, &1))?;
        let kept: Vec<usize> = (0..sparse.rank()).filter(|axis| !axes.contains(axis)).collect();
        let inner = coo::checked_shape(dtype, kept.iter().map(|axis| sparse.dims[*axis]))?;
        let strides = inner.strides();
        let mut places: Vec<usize> = Vec::with_capacity(sparse.len());
        for (i, index) in sparse.entries().enumerate() {
            coo::check_inside(index, sparse.dims, i)?;
            let steps = kept.iter().zip(&strides);
            places.push(steps.map(|(axis, step)| index[*axis] as usize * step).sum());
        }
        let mut output = ctx.output(0, dtype, &shape)?;
        match self.way {
            Way::Sum => for_any_number!(dtype, T => {
                sum::<T>(sparse.values.as_slice(), &places, output.as_mut_slice());
            }),
            Way::Max => for_number!(dtype, T => {
                max::<T>(sparse.values.as_slice(), &places, output.as_mut_slice());
            }),
        }
        Ok(())
    }
}

impl Reduce {
    fn kept<D: Clone>(&self, dims: &[D], axes: &[usize], one: &D) -> Vec<D> {
        let keep = |(axis, dim): (usize, &D)| match (axes.contains(&axis), self.keep_dims) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(one.clone()),
            (true, false) => None,
        };
        dims.iter().enumerate().filter_map(keep).collect()
    }
}

/// The axes counted from the front.
fn normalise(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    axes.iter().map(|axis| normalise_axis(*axis, rank)).collect()
}

fn sum<T: Number>(values: &[T], places: &[usize], out: &mut [T]) {
    out.fill(T::zero());
    for (value, place) in values.iter().zip(places) {
        out[*place] = out[*place].plus(*value);
    }
}

/// Where there is no entry, the maximum is zero.
fn max<T: Number + PartialOrd>(values: &[T], places: &[usize], out: &mut [T]) {
    let mut largest: BTreeMap<usize, T> = BTreeMap::new();
    for (value, place) in values.iter().zip(places) {
        let entry = largest.entry(*place).or_insert(*value);
        if *value > *entry {
            *entry = *value;
        }
    }
    out.fill(T::zero());
    largest.into_iter().for_each(|(place, value)| out[place] = value);
}
