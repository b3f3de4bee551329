//! `Tile`, `BroadcastTo` and `BroadcastArgs`: elements repeated along dimensions.

use crate::prelude::*;

pub(super) const TILE: OpDef = OpDef::pure("Tile", RowRule::Tile, |_| Ok(Box::new(Tile)));
pub(super) const BROADCAST_TO: OpDef =
    OpDef::pure("BroadcastTo", RowRule::BroadcastTo, |_| Ok(Box::new(BroadcastTo)));
pub(super) const BROADCAST_ARGS: OpDef =
    OpDef::pure("BroadcastArgs", RowRule::Mixed, |_| Ok(Box::new(BroadcastArgs)));

struct Tile;

impl Op for Tile {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, multiples] = arity(inputs)?;
        multiples.require_rank(1)?;
        let length = multiples.dims().and_then(|dims| dims[0].size());
        let rank = input.rank().or(length);
        if let (Some(rank), Some(length)) = (rank, length)
            && rank != length
        {
            return wrong_length(rank, length);
        }
        let (Some(dims), Some(times)) = (input.dims(), sizes_of(multiples)) else {
            return Ok(vec![spec_of_rank(input.dtype, rank)]);
        };
        if let Some(i) = times.iter().position(|times| times.known().is_some_and(|t| t < 0)) {
            return negative(i, &times[i].to_string());
        }
        Ok(vec![Spec::new(input.dtype, dims.iter().zip(&times).map(|(d, t)| d.times(t)))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, multiples) = (ctx.input(0), ints(&ctx.input(1))?);
        let from = input.shape();
        if multiples.len() != from.rank() {
            return wrong_length(from.rank(), multiples.len());
        }
        if let Some(i) = multiples.iter().position(|times| *times < 0) {
            return negative(i, &multiples[i].to_string());
        }
        let dims: Option<Ints> =
            from.iter().zip(&multiples).map(|(d, t)| t.checked_mul(*d as i64)).collect();
        let Some(dims) = dims else { return invalid!("the tiled tensor would be too large") };
        let shape = Shape::checked(dims)?;
        let strides = from.strides();
        // Each dimension becomes two: how often, and what.
        let axes = from.iter().zip(&strides).zip(&multiples);
        let axes = axes.flat_map(|((d, s), times)| [(*times as usize, 0), (*d, *s as isize)]);
        let how = Gather { walk: Walk::new(0, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &shape, &how)
    }
}

fn wrong_length<T>(rank: usize, length: usize) -> Result<T> {
    // The text is TensorFlow's (`tile_ops.cc`).
    invalid!("Expected multiples argument to be a vector of length {rank} but got length {length}")
}

fn negative<T>(axis: usize, times: &str) -> Result<T> {
    invalid!("Expected multiples[{axis}] >= 0, but got {times}")
}

struct BroadcastTo;

impl Op for BroadcastTo {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, shape] = arity(inputs)?;
        shape.require_rank(1)?;
        let Some(sizes) = sizes_of(shape) else {
            let rank = shape.dims().and_then(|dims| dims[0].size());
            return Ok(vec![spec_of_rank(input.dtype, rank)]);
        };
        if let (Some(from), Some(to)) = (input.shape(), known_ints(shape)) {
            check_broadcast(&from, &Shape::checked(to)?)?;
        }
        Ok(vec![Spec::new(input.dtype, sizes)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = Shape::checked(ints(&ctx.input(1))?)?;
        let from = input.shape();
        check_broadcast(from, &shape)?;
        let strides = from.strides();
        let axes = shape.iter().enumerate().map(|(i, size)| {
            let at = (i + from.rank()).checked_sub(shape.rank());
            let stride = at.filter(|at| from[*at] != 1).map_or(0, |at| strides[at] as isize);
            (*size, stride)
        });
        let how = Gather { walk: Walk::new(0, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &shape, &how)
    }
}

fn check_broadcast(from: &Shape, to: &Shape) -> Result<()> {
    let fits = from.rank() <= to.rank()
        && from.iter().rev().zip(to.iter().rev()).all(|(a, b)| a == b || *a == 1);
    if !fits {
        // The text is TensorFlow's (`broadcast_to_op.cc`).
        return invalid!("Incompatible shapes: {from} vs. {to}");
    }
    Ok(())
}

/// The shape that two shapes broadcast to.
struct BroadcastArgs;

impl Op for BroadcastArgs {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        a.require_rank(1)?;
        b.require_rank(1)?;
        let as_spec = |shape: &Spec| match sizes_of(shape) {
            Some(sizes) => Spec::new(shape.dtype, sizes),
            None => spec_of_rank(shape.dtype, shape.dims().and_then(|dims| dims[0].size())),
        };
        let dims = broadcast(&as_spec(a), &as_spec(b))?;
        let length = dims.as_ref().map_or(Dim::Unknown, |dims| Dim::of(dims.len()));
        Ok(vec![with_sizes(Spec::new(a.dtype, [length]), dims.map(|dims| dims.to_vec()))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let [a, b] = [0, 1].map(|i| ctx.input(i));
        let shape = broadcast_shapes(&Shape::checked(ints(&a)?)?, &Shape::checked(ints(&b)?)?)?;
        let mut output = ctx.output(0, a.dtype(), &Shape::of(&[shape.rank()]))?;
        match output.dtype() {
            DType::I64 => output.as_mut_slice::<i64>().copy_from_slice(&shape.to_i64()),
            _ => {
                let narrow = output.as_mut_slice::<i32>().iter_mut().zip(shape.iter());
                narrow.for_each(|(x, size)| *x = *size as i32);
            }
        }
        Ok(())
    }
}
