//! `ConcatV2`, `Concat` and `ConcatOffset`: tensors one behind another along an axis.

use crate::prelude::*;

pub(super) const CONCAT_V2: OpDef = OpDef::pure("ConcatV2", RowRule::ConcatV2, |_| {
    Ok(Box::new(Concat { axis: ConcatPlace::Last }))
});
pub(super) const CONCAT: OpDef =
    OpDef::pure("Concat", RowRule::Concat, |_| Ok(Box::new(Concat { axis: ConcatPlace::First })));
pub(super) const CONCAT_OFFSET: OpDef =
    OpDef::pure("ConcatOffset", RowRule::Mixed, |_| Ok(Box::new(ConcatOffset)));

/// The input that is the axis.
#[derive(Clone, Copy)]
enum ConcatPlace {
    First,
    Last,
}

impl ConcatPlace {
    /// The values and the axis.
    fn split<T>(self, inputs: &[T]) -> Result<(&[T], &T)> {
        let split = match self {
            Self::First => inputs.split_first().map(|(axis, values)| (values, axis)),
            Self::Last => inputs.split_last().map(|(axis, values)| (values, axis)),
        };
        match split {
            Some((values, axis)) if !values.is_empty() => Ok((values, axis)),
            _ => invalid!("expected at least 2 inputs but got {}", inputs.len()),
        }
    }
}

struct Concat {
    axis: ConcatPlace,
}

impl Op for Concat {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (values, axis) = self.axis.split(inputs)?;
        // A list of one number stands for the number, as in old graphs.
        axis.require_rank_at_most(1)?;
        let dtype = values[0].dtype;
        let rank = values.iter().find_map(Spec::rank);
        if let Some(scalar) = values.iter().find(|value| value.rank() == Some(0)) {
            return invalid!("cannot concatenate scalars, got {scalar}");
        }
        let (Some(rank), Some(axis)) = (rank, known_int(axis)) else {
            values.iter().try_for_each(|value| rank.map_or(Ok(()), |r| value.require_rank(r)))?;
            return Ok(vec![spec_of_rank(dtype, rank)]);
        };
        let axis = concat_axis(axis, rank)?;
        let mut dims = Dims::from_elem(Dim::Unknown, rank);
        let mut length = Dim::Known(0);
        for value in values {
            let Some(other) = value.dims() else {
                length = Dim::Unknown;
                continue;
            };
            value.require_rank(rank)?;
            for (i, (dim, other)) in dims.iter_mut().zip(other).enumerate() {
                if i != axis {
                    *dim = merge_dim(dim, other)?;
                }
            }
            length = length.plus(&other[axis]);
        }
        dims[axis] = length;
        let sizes: Option<Vec<Vec<Dim>>> = values.iter().map(sizes_or_unknown).collect();
        Ok(vec![with_sizes(spec_of(dtype, Some(dims)), sizes.map(|sizes| sizes.concat()))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (values, axis) = self.axis.split(ctx.inputs())?;
        let axis = concat_axis(int(axis)?, values[0].shape().rank())?;
        let shape = concat_shape(values, axis)?;
        join(ctx, |inputs| Ok(self.axis.split(inputs)?.0), axis, &shape)
    }
}

/// The elements of a small vector, unknown if need be, so that one unknown part does not hide the
/// others.
fn sizes_or_unknown(spec: &Spec) -> Option<Vec<Dim>> {
    sizes_of(spec).or_else(|| {
        let length = spec.dims().filter(|dims| dims.len() == 1)?[0].size()?;
        (length <= 32).then(|| vec![Dim::Unknown; length])
    })
}

fn concat_axis(axis: i64, rank: usize) -> Result<usize> {
    normalise_axis(axis, rank).map_err(|_| {
        // The text is TensorFlow's (`concat_op.cc`).
        Error::InvalidArgument(format!(
            "ConcatOp : Expected concatenating dimensions in the range [-{rank}, {rank}), but got \
             {axis}"
        ))
    })
}

fn concat_shape(values: &[View<'_>], axis: usize) -> Result<Shape> {
    let first = values[0].shape();
    let mut dims = first.to_i64();
    dims[axis] = 0;
    for (i, value) in values.iter().enumerate() {
        let shape = value.shape();
        let same = shape.rank() == first.rank()
            && shape.iter().zip(first.iter()).enumerate().all(|(d, (a, b))| d == axis || a == b);
        if !same {
            // The text is TensorFlow's (`concat_op.cc`).
            return invalid!(
                "ConcatOp : Dimension {axis} in both shapes must be equal: shape[0] = {first} vs. \
                 shape[{i}] = {shape}"
            );
        }
        dims[axis] += shape[axis] as i64;
    }
    Ok(Shape::checked(dims)?)
}

/// Makes output 0 of the values among the inputs, one behind another along `axis`.
pub(super) fn join(
    ctx: &mut Ctx<'_>,
    values: impl for<'a, 'b> Fn(&'b [View<'a>]) -> Result<&'b [View<'a>]>,
    axis: usize,
    shape: &Shape,
) -> Result<()> {
    let all = values(ctx.inputs())?;
    let (dtype, n_outer) = (all[0].dtype(), all[0].shape()[..axis].iter().product());
    if !dtype.is_plain() {
        let all: Vec<View<'_>> = all.to_vec();
        return rearrange(ctx, 0, &all, shape, &Joined { n_outer });
    }
    if let Some(other) = all.iter().find(|view| view.dtype() != dtype) {
        return invalid!("expected {dtype} for every input but got {}", other.dtype());
    }
    let (inputs, mut output) = ctx.inputs_and_output(0, dtype, shape)?;
    let all = values(inputs)?;
    let mut rest = output.bytes();
    for outer in 0..n_outer {
        pace(rest.len() / (n_outer - outer) / 8)?;
        for value in all {
            let bytes = value.bytes();
            let length = bytes.len() / n_outer;
            let (run, after) = rest.split_at_mut(length);
            run.copy_from_slice(&bytes[outer * length..][..length]);
            rest = after;
        }
    }
    Ok(())
}

/// Rows of several inputs in turn: `n_outer` times a run of each input.
struct Joined {
    n_outer: usize,
}

impl Move for Joined {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let n_outer = self.n_outer.max(1); // Without rows there are no elements to move.
        let mut rest = output;
        for outer in 0..n_outer {
            pace(rest.len() / (n_outer - outer))?;
            for input in inputs {
                let length = input.len() / n_outer;
                let (run, after) = rest.split_at_mut(length);
                run.copy_from_slice(&input[outer * length..(outer + 1) * length]);
                rest = after;
            }
        }
        Ok(())
    }
}

/// The op that gives the beginning of each input in the concatenation, as shapes.
struct ConcatOffset;

impl Op for ConcatOffset {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2)?;
        inputs[0].require_rank(0)?;
        inputs[1..].iter().try_for_each(|shape| shape.require_rank(1))?;
        Ok(inputs[1..].iter().map(|shape| shape.with_dtype(shape.dtype)).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let first = ints(&ctx.input(1))?;
        let rank = first.len();
        let axis = concat_axis(int(&ctx.input(0))?, rank)?;
        let mut offset = 0i64;
        for i in 0..ctx.n_inputs() - 1 {
            let shape = ints(&ctx.input(i + 1))?;
            let others = |at: usize| at == axis || shape[at] == first[at];
            if shape.len() != rank || !(0..rank).all(others) {
                return invalid!(
                    "All dimensions except {axis} must match. Input {i} has shape {shape:?} and \
                     doesn't match input 0 with shape {first:?}"
                );
            }
            let dtype = ctx.input(i + 1).dtype();
            let mut output = ctx.output(i, dtype, &Shape::of(&[rank]))?;
            output.bytes().fill(0);
            match dtype {
                DType::I64 => output.as_mut_slice::<i64>()[axis] = offset,
                _ => output.as_mut_slice::<i32>()[axis] = offset as i32,
            }
            offset = offset.wrapping_add(shape[axis]);
        }
        Ok(())
    }
}
