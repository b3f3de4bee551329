//! `FakeQuantWithMinMax…`: floats rounded as if they had been quantized, following
//! `fake_quant_ops_functor.h`.

use super::clamp;
use crate::prelude::*;

/// The source of the ranges.
enum Range {
    Attributes(f32, f32),
    Scalars,
    /// One for each element of the last axis.
    Channels,
}

struct FakeQuant {
    range: Range,
    low: f32,
    high: f32,
}

pub(super) fn build_args(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let (min, max) = (attrs.float_or("min", -6.0)?, attrs.float_or("max", 6.0)?);
    if min >= max {
        return invalid!("min has to be smaller than max, was: {min} >= {max}");
    }
    build(attrs, Range::Attributes(min, max))
}

pub(super) fn build_vars(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    build(attrs, Range::Scalars)
}

pub(super) fn build_channels(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    build(attrs, Range::Channels)
}

fn build(attrs: &Attrs<'_>, range: Range) -> Result<Box<dyn Op>> {
    let bits = attrs.int_or("num_bits", 8)?;
    if !(2..=16).contains(&bits) {
        return invalid!("num_bits must be between 2 and 16, inclusive, was: {bits}");
    }
    let low = if attrs.bool_or("narrow_range", false)? { 1.0 } else { 0.0 };
    Ok(Box::new(FakeQuant { range, low, high: ((1u32 << bits) - 1) as f32 }))
}

impl Op for FakeQuant {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (x, rank) = match (&self.range, inputs) {
            (Range::Attributes(..), [x]) => (x, None),
            (Range::Scalars, [x, _, _]) => (x, Some(0)),
            (Range::Channels, [x, _, _]) => (x, Some(1)),
            _ => return invalid!("got {} inputs", inputs.len()),
        };
        for bound in &inputs[1..] {
            rank.map_or(Ok(()), |rank| bound.require_rank(rank))?;
        }
        if let Range::Channels = self.range {
            x.require_rank_at_least(1)?;
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let x: &[f32] = input.as_slice();
        let mut steps = ctx.scratch().part(self.n_ranges(input.shape()))?;
        match self.range {
            Range::Attributes(min, max) => steps.fill(self.step((min, max))),
            Range::Channels if input.shape().rank() == 0 => {
                return invalid!("expected rank at least 1 but got a scalar");
            }
            Range::Scalars | Range::Channels => {
                let ranges = super::ranges(ctx.input(1), ctx.input(2), steps.len())?;
                steps.iter_mut().zip(ranges).for_each(|(step, range)| *step = self.step(range));
            }
        }
        let mut out = ctx.output(0, DType::F32, input.shape())?;
        let out: &mut [f32] = out.as_mut_slice();
        if let [step] = &steps[..] {
            for (x, out) in x.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
                pace(8 * x.len())?;
                x.iter().zip(out).for_each(|(x, out)| *out = step.round(*x));
            }
            return Ok(());
        }
        let width = steps.len().max(1);
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            pace(8 * width)?;
            for ((x, out), step) in x.iter().zip(out).zip(steps.iter()) {
                *out = step.round(*x);
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_of::<FakeStep>(inputs[0].shape().map_or(0, |shape| self.n_ranges(&shape)))
    }
}

impl FakeQuant {
    /// Returns how many ranges an input of this shape has.
    fn n_ranges(&self, shape: &Shape) -> usize {
        match self.range {
            Range::Attributes(..) | Range::Scalars => 1,
            Range::Channels => shape.last_dim(),
        }
    }

    /// The steps of a range, moved a little so that zero is one of them.
    fn step(&self, (min, max): (f32, f32)) -> FakeStep {
        if min == 0.0 && max == 0.0 {
            return FakeStep { low: 0.0, high: 0.0, size: 0.0, inverse: 0.0, zero: 0.0 };
        }
        let size = (max - min) / (self.high - self.low);
        let from_min = self.low - min / size;
        let zero_point = if from_min < self.low {
            self.low
        } else if from_min > self.high {
            self.high
        } else {
            from_min.round()
        };
        let low = (self.low - zero_point) * size;
        let inverse = 1.0 / size;
        let zero = (-low * inverse + 0.5).floor();
        FakeStep { low, high: (self.high - zero_point) * size, size, inverse, zero }
    }
}

/// Equal steps.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct FakeStep {
    low: f32,
    high: f32,
    size: f32,
    inverse: f32,
    /// The step at zero.
    zero: f32,
}

impl FakeStep {
    fn round(&self, x: f32) -> f32 {
        let shifted = clamp(x, self.low, self.high) - self.low;
        (shifted * self.inverse - self.zero + 0.5).floor() * self.size
    }
}
