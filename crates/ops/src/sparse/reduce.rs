//! `SparseReduceSum` and `SparseReduceMax`: sparse tensors reduced to dense ones.
//!
//! Follows `sparse_reduce_op.cc` of TensorFlow.

use smallvec::SmallVec;

use super::coo::{self, Coo};
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const SUM: OpDef =
    OpDef::pure("SparseReduceSum", RowRule::Mixed, |attrs| build(attrs, Way::Sum));
pub(super) const MAX: OpDef =
    OpDef::pure("SparseReduceMax", RowRule::Mixed, |attrs| build(attrs, Way::Max));

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
        let axes = ctx.input(3);
        if axes.shape().rank() > 1 {
            // The text is TensorFlow's (`sparse_reduce_op.cc`).
            let got = axes.shape();
            return invalid!(
                "Expected reduction_axes to be a scalar or a vector; got shape: {got}"
            );
        }
        let axes = normalise(&ints(&axes)?, sparse.rank())?;
        let dtype = sparse.values.dtype();
        let shape = coo::checked_shape(dtype, self.kept(sparse.dims, &axes, &1))?;
        let kept: Axes = (0..sparse.rank()).filter(|axis| !axes.contains(axis)).collect();
        let inner = coo::checked_shape(dtype, kept.iter().map(|axis| sparse.dims[*axis]))?;
        let strides = inner.strides();
        let mut scratch = ctx.scratch();
        let mut places = scratch.part(sparse.len())?;
        for (i, (index, place)) in sparse.entries().zip(places.iter_mut()).enumerate() {
            pace(8)?;
            coo::check_inside(index, sparse.dims, i)?;
            let steps = kept.iter().zip(&strides);
            *place = steps.map(|(axis, step)| index[*axis] as usize * step).sum();
        }
        let mut output = ctx.output(0, dtype, &shape)?;
        match self.way {
            Way::Sum => for_any_number!(dtype, T => {
                sum::<T>(sparse.values.as_slice(), &places, output.as_mut_slice());
            }),
            Way::Max => {
                let mut seen = scratch.part(shape.n_elements())?;
                for_number!(dtype, T => {
                    let out = (output.as_mut_slice(), &mut seen[..]);
                    max::<T>(sparse.values.as_slice(), &places, out);
                })
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let seen = match self.way {
            Way::Sum => 0,
            Way::Max => Scratch::bytes_for::<u8>(&outputs[0]),
        };
        Scratch::bytes_for::<usize>(&inputs[1]) + seen
    }
}

/// Numbers of axes.
type Axes = SmallVec<[usize; 8]>;

impl Reduce {
    fn kept<D: Clone>(&self, dims: &[D], axes: &[usize], one: &D) -> SmallVec<[D; 5]> {
        let keep = |(axis, dim): (usize, &D)| match (axes.contains(&axis), self.keep_dims) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(one.clone()),
            (true, false) => None,
        };
        dims.iter().enumerate().filter_map(keep).collect()
    }
}

/// The axes counted from the front.
fn normalise(axes: &[i64], rank: usize) -> Result<Axes> {
    axes.iter().map(|axis| normalise_axis(*axis, rank)).collect()
}

fn sum<T: Number>(values: &[T], places: &[usize], out: &mut [T]) {
    out.fill(T::zero());
    for (value, place) in values.iter().zip(places) {
        if is_stopped(4) {
            return;
        }
        out[*place] = out[*place].plus(*value);
    }
}

/// Writes the maximum of the entries of each place; without an entry it is zero. `seen` has room
/// for a flag of each place: it has an entry.
fn max<T: Number + PartialOrd>(values: &[T], places: &[usize], (out, seen): (&mut [T], &mut [u8])) {
    out.fill(T::zero());
    seen.fill(0);
    for (value, place) in values.iter().zip(places) {
        if is_stopped(4) {
            return;
        }
        if seen[*place] == 0 || *value > out[*place] {
            (out[*place], seen[*place]) = (*value, 1);
        }
    }
}
