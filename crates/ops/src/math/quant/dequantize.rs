//! `Dequantize`: quanta of a range to floats, following `dequantize_op.cc`.

use half::bf16;

use super::{QuantMode, QuantSlices, Quanta, ranges};
use crate::prelude::*;

struct Dequantize {
    dtype: DType,
    mode: QuantMode,
    narrow_range: bool,
    axis: i64,
}

pub(super) fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let dtype = attrs.dtype_or("dtype", DType::F32)?;
    let mode = QuantMode::of(attrs)?;
    match dtype {
        DType::F32 => {}
        DType::BF16 if mode == QuantMode::MinCombined => {}
        DType::BF16 => {
            return invalid!("When output type is bfloat16, Mode string must be 'MIN_COMBINED'");
        }
        other => return invalid!("Output type must be bfloat16 or float, is '{other}'"),
    }
    let narrow_range = attrs.bool_or("narrow_range", false)?;
    Ok(Box::new(Dequantize { dtype, mode, narrow_range, axis: attrs.int_or("axis", -1)? }))
}

impl Op for Dequantize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, _, _] = arity(inputs)?;
        Ok(vec![x.with_dtype(self.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, low, high) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let slices = QuantSlices::new(x.shape(), self.axis)?;
        let ranges = ranges(low, high, slices.n)?;
        if slices.n != 1 && self.mode == QuantMode::MinFirst {
            return crate::error::unsupported!("MIN_FIRST with an axis");
        }
        let quanta = Quanta::of(x.dtype())?;
        let mut lines = ctx.scratch().part(slices.n)?;
        lines.iter_mut().zip(ranges).for_each(|(line, range)| *line = self.line(quanta, range));
        let mut out = ctx.output(0, self.dtype, x.shape())?;
        match self.dtype {
            DType::F32 => write_all::<f32>(slices, x, &lines, out.as_mut_slice(), |x| x),
            _ => write_all::<bf16>(slices, x, &lines, out.as_mut_slice(), bf16::from_f32),
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_of::<DequantizeLine>(QuantSlices::count(&inputs[0], self.axis))
    }
}

/// A quantum `q` stands for `(q + before) * scale + after`.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct DequantizeLine {
    before: f32,
    scale: f32,
    after: f32,
}

impl Dequantize {
    fn line(&self, quanta: Quanta, (low, high): (f32, f32)) -> DequantizeLine {
        let (from, to) = (quanta.low as f32, quanta.high as f32);
        match self.mode {
            QuantMode::MinCombined => DequantizeLine {
                before: quanta.half_range(),
                scale: (high - low) / (to - from),
                after: low,
            },
            QuantMode::MinFirst => {
                let n = (1u64 << quanta.bits) as f64;
                let scale = f64::from(high - low) / (n - 1.0);
                let start = if high == low {
                    f64::from(low)
                } else {
                    (f64::from(low) / scale).round() * scale
                };
                DequantizeLine {
                    before: 0.0,
                    scale: scale as f32,
                    after: (start - quanta.low * scale) as f32,
                }
            }
            QuantMode::Scaled => {
                let least = from + if self.narrow_range { 1.0 } else { 0.0 };
                let scale = if from == 0.0 { high / to } else { (low / least).max(high / to) };
                DequantizeLine { before: 0.0, scale, after: 0.0 }
            }
        }
    }
}

/// Writes what the quanta stand for, rounded.
fn write_all<U>(
    slices: QuantSlices,
    x: View<'_>,
    lines: &[DequantizeLine],
    out: &mut [U],
    round: impl Fn(f32) -> U,
) {
    match x.dtype() {
        DType::QU8 => write(slices, x.as_slice::<u8>(), lines, out, round),
        DType::QI16 => write(slices, x.as_slice::<i16>(), lines, out, round),
        DType::QU16 => write(slices, x.as_slice::<u16>(), lines, out, round),
        DType::QI32 => write(slices, x.as_slice::<i32>(), lines, out, round),
        _ => write(slices, x.as_slice::<i8>(), lines, out, round),
    }
}

fn write<T: Element + Into<f64>, U>(
    slices: QuantSlices,
    x: &[T],
    lines: &[DequantizeLine],
    out: &mut [U],
    round: impl Fn(f32) -> U,
) {
    slices.for_each(x, out, |slice, x, out| {
        let DequantizeLine { before, scale, after } = lines[slice];
        for (x, out) in x.iter().zip(out) {
            *out = round(((*x).into() as f32 + before) * scale + after);
        }
    });
}
