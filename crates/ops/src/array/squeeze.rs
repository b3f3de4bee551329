//! `Squeeze` and `ExpandDims`: dimensions of size one, taken out and put in.

use smallvec::SmallVec;

use crate::prelude::*;

pub(super) const SQUEEZE: OpDef = OpDef::pure("Squeeze", RowRule::SameElements, |attrs| {
    Ok(Box::new(Squeeze { axes: attrs.ints_or("squeeze_dims", &[])?.to_vec() }))
});
pub(super) const EXPAND_DIMS: OpDef =
    OpDef::pure("ExpandDims", RowRule::SameElements, |_| Ok(Box::new(ExpandDims)));

struct Squeeze {
    /// The axes to take out; if empty, all of size one.
    axes: Vec<i64>,
}

impl Squeeze {
    /// Returns for each of `rank` dimensions whether it is asked to go.
    fn asked(&self, rank: usize) -> Result<SmallVec<[bool; 8]>> {
        let mut asked = SmallVec::from_elem(false, rank);
        for axis in &self.axes {
            let Ok(at) = normalise_axis(*axis, rank) else {
                return invalid!(
                    "Tried to squeeze dim index {axis} for tensor with {rank} dimensions"
                );
            };
            asked[at] = true;
        }
        Ok(asked)
    }
}

impl Op for Squeeze {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(input.dtype)]) };
        let asked = self.asked(dims.len())?;
        let mut kept = Dims::new();
        for (i, dim) in dims.iter().enumerate() {
            match dim {
                Dim::Known(1) if self.axes.is_empty() => {}
                Dim::Known(size) if asked[i] && *size != 1 => return not_one(i, *size),
                _ if asked[i] => {}
                // It may be one, and then go.
                Dim::Symbolic(_) | Dim::Unknown if self.axes.is_empty() => {
                    return Ok(vec![Spec::unknown(input.dtype)]);
                }
                dim => kept.push(dim.clone()),
            }
        }
        Ok(vec![with_sizes(spec_of(input.dtype, Some(kept)), sizes_of(input))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let asked = self.asked(input.shape().rank())?;
        let mut kept = Ints::new();
        for (i, size) in input.shape().iter().enumerate() {
            if asked[i] && *size != 1 {
                return not_one(i, *size as i64);
            }
            let goes = asked[i] || (self.axes.is_empty() && *size == 1);
            if !goes {
                kept.push(*size as i64);
            }
        }
        ctx.forward(0, input, Shape::checked(kept)?)
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }
}

fn not_one<T>(axis: usize, size: i64) -> Result<T> {
    // The text is TensorFlow's (`shape_ops.h`).
    invalid!("Can not squeeze dim[{axis}], expected a dimension of 1, got {size}")
}

struct ExpandDims;

impl Op for ExpandDims {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, axis] = arity(inputs)?;
        if axis.n_elements().known().is_some_and(|n| n != 1) {
            return invalid!("'dim' must be a tensor with a single value");
        }
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(input.dtype)]) };
        let Some(axis) = known_int(axis) else {
            return Ok(vec![spec_of_rank(input.dtype, Some(dims.len() + 1))]);
        };
        let mut dims: Dims = dims.iter().cloned().collect();
        dims.insert(place(axis, dims.len())?, Dim::Known(1));
        Ok(vec![with_sizes(spec_of(input.dtype, Some(dims)), sizes_of(input))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, axis) = (ctx.input(0), int(&ctx.input(1))?);
        let mut dims = input.shape().to_i64();
        dims.insert(place(axis, dims.len())?, 1);
        ctx.forward(0, input, Shape::checked(dims)?)
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }
}

/// Returns the place of the new dimension of a tensor of `rank`.
fn place(axis: i64, rank: usize) -> Result<usize> {
    normalise_axis(axis, rank + 1).map_err(|_| {
        let (low, high) = (-1 - rank as i64, rank);
        let why = format!("Tried to expand dim index {axis} for tensor with {rank} dimensions");
        Error::InvalidArgument(format!("{why}, not in [{low}, {high}]"))
    })
}
