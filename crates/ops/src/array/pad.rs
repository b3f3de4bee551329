//! `Pad`, `PadV2` and `MirrorPad`: elements around a tensor.

use smallvec::SmallVec;

use super::tables::{Nothing, Tables};
use crate::prelude::*;

pub(super) const PAD: OpDef =
    OpDef::pure("Pad", RowRule::Pad, |_| Ok(Box::new(Pad { has_value: false })));
pub(super) const PAD_V2: OpDef =
    OpDef::pure("PadV2", RowRule::Pad, |_| Ok(Box::new(Pad { has_value: true })));
pub(super) const MIRROR_PAD: OpDef = OpDef::pure("MirrorPad", RowRule::MirrorPad, |attrs| {
    let skip = match attrs.str("mode")? {
        "REFLECT" => 1,
        "SYMMETRIC" => 0,
        mode => return invalid!("mode must be REFLECT or SYMMETRIC, not {mode}"),
    };
    Ok(Box::new(MirrorPad { skip }))
});

struct Pad {
    /// `true` if the third input is the value around; the value is zero else.
    has_value: bool,
}

impl Op for Pad {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2 + usize::from(self.has_value))?;
        Ok(vec![infer_padded(&inputs[0], &inputs[1])?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let pads = paddings(&ctx.input(1), input.shape().rank())?;
        let shape = padded(input.shape(), &pads)?;
        let strides = shape.strides();
        let start = if input.n_elements() == 0 {
            0
        } else {
            pads.iter().zip(&strides).map(|(pad, stride)| pad.0 * stride).sum()
        };
        let axes = input.shape().iter().zip(&strides).map(|(dim, s)| (*dim, *s as isize));
        let around = PadAround { walk: Walk::new(start, axes) };
        if !self.has_value {
            return rearrange(ctx, 0, &[input], &shape, &around);
        }
        let value = ctx.input(2);
        if value.n_elements() != 1 {
            return invalid!("constant_values must be a scalar. Got shape {}", value.shape());
        }
        rearrange(ctx, 0, &[input, value], &shape, &around)
    }
}

/// The first input inside of the second, or of zeros.
struct PadAround {
    walk: Walk,
}

impl Move for PadAround {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let value = inputs.get(1).map_or_else(T::zeroed, |value| value[0]);
        for output in output.chunks_mut(AT_ONCE) {
            pace(output.len())?;
            output.fill(value);
        }
        self.walk.scatter(inputs[0], output);
        Ok(())
    }
}

fn infer_padded(input: &Spec, pads: &Spec) -> Result<Spec> {
    pads.require_rank(2)?;
    let rows = pads.dims().and_then(|dims| dims[0].size());
    if pads.dims().is_some_and(|dims| dims[1].differs(&Dim::Known(2))) {
        return invalid!("paddings must be a matrix with 2 columns, got {pads}");
    }
    let rank = input.rank().or(rows);
    if let (Some(rank), Some(rows)) = (rank, rows)
        && rank != rows
    {
        return wrong_rows(rank, rows);
    }
    let (Some(dims), Some(pads)) = (input.dims(), known_ints(pads)) else {
        return Ok(spec_of_rank(input.dtype, rank));
    };
    if pads.len() != dims.len() * 2 || pads.iter().any(|pad| *pad < 0) {
        return invalid!("Paddings must be non-negative, got {pads:?}");
    }
    let dim = |(dim, pad): (&Dim, &[i64])| dim.plus(&Dim::Known(pad[0])).plus(&Dim::Known(pad[1]));
    Ok(Spec::new(input.dtype, dims.iter().zip(pads.chunks_exact(2)).map(dim)))
}

/// Returns how many elements come before and behind each dimension.
fn paddings(view: &View<'_>, rank: usize) -> Result<SmallVec<[(usize, usize); 5]>> {
    let shape = view.shape();
    if shape.rank() != 2 || shape[1] != 2 {
        return invalid!("paddings must be a matrix with 2 columns: {shape}");
    }
    if shape[0] != rank {
        return wrong_rows(rank, shape[0]);
    }
    let pads = ints(view)?;
    let pair = |pair: &[i64]| match (usize::try_from(pair[0]), usize::try_from(pair[1])) {
        (Ok(before), Ok(behind)) => Ok((before, behind)),
        _ => invalid!("Paddings must be non-negative: {} {}", pair[0], pair[1]),
    };
    pads.chunks_exact(2).map(pair).collect()
}

fn wrong_rows<T>(rank: usize, rows: usize) -> Result<T> {
    // The text is TensorFlow's (`pad_op.cc`).
    invalid!("The first dimension of paddings must be the rank of inputs: {rank}, not {rows}")
}

fn padded(shape: &Shape, pads: &[(usize, usize)]) -> Result<Shape> {
    let dim = |(dim, pad): (&usize, &(usize, usize))| {
        let sum = dim.saturating_add(pad.0).saturating_add(pad.1);
        i64::try_from(sum).unwrap_or(i64::MAX)
    };
    Ok(Shape::checked(shape.iter().zip(pads).map(dim))?)
}

/// The elements around are those inside, seen in a mirror.
struct MirrorPad {
    /// The number of elements at the border that are not seen twice.
    skip: usize,
}

impl MirrorPad {
    /// Fails if there is less inside than is to be seen in the mirror.
    fn check(&self, from: &Shape, pads: &[(usize, usize)]) -> Result<()> {
        for (dim, (before, behind)) in from.iter().zip(pads) {
            let most = dim.saturating_sub(self.skip);
            if *dim < self.skip || *before > most || *behind > most {
                // The text is TensorFlow's (`mirror_pad_op.cc`).
                return invalid!(
                    "paddings must be no greater than the dimension size: {before}, {behind} \
                     greater than {most}"
                );
            }
        }
        Ok(())
    }
}

impl Op for MirrorPad {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, pads] = arity(inputs)?;
        if let (Some(from), Some(pads)) = (input.shape(), pads.as_constant()) {
            self.check(&from, &paddings(&pads.view(), from.rank())?)?;
        }
        Ok(vec![infer_padded(input, pads)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let from = input.shape();
        let pads = paddings(&ctx.input(1), from.rank())?;
        self.check(from, &pads)?;
        let shape = padded(from, &pads)?;
        if shape.n_elements() == 0 {
            return rearrange(ctx, 0, &[input], &shape, &Nothing);
        }
        let fill = |axis: usize, table: &mut [usize]| {
            let (dim, (before, behind)) = (from[axis], pads[axis]);
            let front = (0..before).rev().map(|i| i + self.skip);
            let back = (0..behind).map(|i| dim - 1 - self.skip - i);
            let indices = front.chain(0..dim).chain(back);
            table.iter_mut().zip(indices).for_each(|(to, index)| *to = index);
        };
        let tables = Tables::new(from, &shape, &mut ctx.scratch(), fill)?;
        rearrange(ctx, 0, &[input], &shape, &tables)
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        Tables::bytes(&outputs[0])
    }
}
