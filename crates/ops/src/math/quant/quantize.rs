//! `QuantizeV2`: floats to quanta of a range, following `quantize_op.cc`.

use super::{QuantMode, QuantSlices, Quanta, clamp, ranges};
use crate::prelude::*;

struct Quantize {
    dtype: DType,
    quanta: Quanta,
    mode: QuantMode,
    ties_to_even: bool,
    narrow_range: bool,
    axis: i64,
    /// The least width of a range, as a share of its ends.
    width_min: f32,
}

pub(super) fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let dtype = attrs.dtype("T")?;
    let mode = QuantMode::of(attrs)?;
    let ties_to_even = match attrs.str_or("round_mode", "HALF_AWAY_FROM_ZERO")? {
        "HALF_AWAY_FROM_ZERO" => false,
        "HALF_TO_EVEN" => true,
        other => return invalid!("round_mode {other} is not HALF_AWAY_FROM_ZERO or HALF_TO_EVEN"),
    };
    if ties_to_even && mode != QuantMode::Scaled {
        return invalid!("Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED'");
    }
    Ok(Box::new(Quantize {
        dtype,
        quanta: Quanta::of(dtype)?,
        mode,
        ties_to_even,
        narrow_range: attrs.bool_or("narrow_range", false)?,
        axis: attrs.int_or("axis", -1)?,
        width_min: attrs.float_or("ensure_minimum_range", 0.01)?,
    }))
}

impl Op for Quantize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, low, _] = arity(inputs)?;
        let bound = match (self.axis, x.dims()) {
            (-1, _) => Spec::scalar(DType::F32),
            // A single slice is treated as if there were no axis.
            (_, None) => Spec::unknown(DType::F32),
            (axis, Some(dims)) => {
                let dim = usize::try_from(axis).ok().and_then(|axis| dims.get(axis));
                match dim {
                    None => return invalid!("axis {axis} is not one of {x}"),
                    Some(Dim::Known(1)) => Spec::scalar(DType::F32),
                    Some(Dim::Known(_)) => low.with_dtype(DType::F32),
                    Some(_) => Spec::unknown(DType::F32),
                }
            }
        };
        Ok(vec![x.with_dtype(self.dtype), bound.clone(), bound])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, low, high) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let slices = QuantSlices::new(input.shape(), self.axis)?;
        let ranges = ranges(low, high, slices.n)?;
        if slices.n != 1 && self.mode == QuantMode::MinFirst {
            return crate::error::unsupported!("MIN_FIRST with an axis");
        }
        let mut maps = ctx.scratch().part(slices.n)?;
        for (map, range) in maps.iter_mut().zip(ranges) {
            *map = self.map(range)?;
        }
        let x: &[f32] = input.as_slice();
        let mut out = ctx.output(0, self.dtype, input.shape())?;
        match self.dtype {
            DType::QU8 => self.write::<u8>(slices, x, &maps, out.as_mut_slice()),
            DType::QI16 => self.write::<i16>(slices, x, &maps, out.as_mut_slice()),
            DType::QU16 => self.write::<u16>(slices, x, &maps, out.as_mut_slice()),
            DType::QI32 => self.write::<i32>(slices, x, &maps, out.as_mut_slice()),
            _ => self.write::<i8>(slices, x, &maps, out.as_mut_slice()),
        }
        let shape = if slices.n == 1 { Shape::scalar() } else { low.shape().clone() };
        for (output, bound) in [(1, (|map| map.low) as fn(&Map) -> f32), (2, |map| map.high)] {
            let mut out = ctx.output(output, DType::F32, &shape)?;
            let out = out.as_mut_slice::<f32>().iter_mut();
            out.zip(maps.iter()).for_each(|(out, map)| *out = bound(map));
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_of::<Map>(QuantSlices::count(&inputs[0], self.axis))
    }
}

/// A range that is quantized.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Map {
    low: f32,
    high: f32,
    scale: f32,
}

/// An integer that quanta are stored as.
trait Stored: Copy {
    /// Rounded towards zero.
    fn of(x: f32) -> Self;
}

macro_rules! stored {
    ($($type:ident)*) => { $(impl Stored for $type {
        fn of(x: f32) -> Self {
            x as Self
        }
    })* };
}

stored! { i8 u8 i16 u16 i32 }

impl Quantize {
    /// The range with zero in it, wide enough, and its scale.
    fn map(&self, (low, high): (f32, f32)) -> Result<Map> {
        if high < low {
            return invalid!("input_max_range must be larger than input_min_range.");
        }
        let least = low.abs().max(high.abs()).max(1.0) * self.width_min;
        let low = low.min(0.0);
        let high = high.max(low + least).max(0.0);
        let (from, to) = (self.quanta.low, self.quanta.high);
        Ok(match self.mode {
            QuantMode::MinCombined => {
                Map { low, high, scale: ((to - from) / f64::from(high - low)) as f32 }
            }
            QuantMode::MinFirst => {
                let n = (1u64 << self.quanta.bits) as f64;
                let range = f64::from(high - low) * (n / (n - 1.0));
                Map { low, high, scale: (n / range) as f32 }
            }
            QuantMode::Scaled => {
                let from = from as f32 + if self.narrow_range { 1.0 } else { 0.0 };
                let to = to as f32;
                let from_low = if from * low > 0.0 { from / low } else { f32::MAX };
                let from_high = if to * high > 0.0 { to / high } else { f32::MAX };
                let scale = from_low.min(from_high);
                Map { low: from / scale, high: to / scale, scale }
            }
        })
    }

    fn write<T: Stored>(&self, slices: QuantSlices, x: &[f32], maps: &[Map], out: &mut [T]) {
        let half = self.quanta.half_range();
        let (from, to) = (self.quanta.low as f32, self.quanta.high as f32);
        slices.for_each(x, out, |slice, x, out| {
            let Map { low, high, scale } = maps[slice];
            let start = (low * scale).round();
            for (x, out) in x.iter().zip(out) {
                let inside = clamp(*x, low, high);
                *out = T::of(match self.mode {
                    QuantMode::MinCombined if half == 0.0 => (inside - low) * scale + 0.5,
                    QuantMode::MinCombined => ((inside - low) * scale - half).round(),
                    QuantMode::MinFirst => clamp((*x * scale).round() - start + from, from, to),
                    QuantMode::Scaled if self.ties_to_even => (inside * scale).round_ties_even(),
                    QuantMode::Scaled => (inside * scale).round(),
                });
            }
        });
    }
}
