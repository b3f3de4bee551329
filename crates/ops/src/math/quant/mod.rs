//! Quantized numbers: to, from, and as if.

mod again;
mod dequantize;
mod fake;
mod quantize;

use crate::prelude::*;

/// The rows.
pub(super) const OPS: &[OpDef] = &[
    OpDef::pure("FakeQuantWithMinMaxArgs", RowRule::Elementwise, fake::build_args),
    OpDef::pure("FakeQuantWithMinMaxVars", RowRule::Elementwise, fake::build_vars),
    OpDef::pure("FakeQuantWithMinMaxVarsPerChannel", RowRule::Mixed, fake::build_channels),
    OpDef::pure("QuantizeV2", RowRule::Mixed, quantize::build),
    OpDef::pure("Dequantize", RowRule::Mixed, dequantize::build),
    OpDef::pure("QuantizeAndDequantizeV2", RowRule::Mixed, again::build),
    OpDef::pure("QuantizeAndDequantizeV3", RowRule::Mixed, again::build_v3),
    OpDef::pure("QuantizeAndDequantizeV4", RowRule::Mixed, again::build),
];

/// The numbers that a quantized dtype has: the lowest, the highest, and its bits.
#[derive(Debug, Clone, Copy)]
struct Quanta {
    low: f64,
    high: f64,
    bits: u32,
}

impl Quanta {
    fn of(dtype: DType) -> Result<Self> {
        let (low, high, bits) = match dtype {
            DType::QI8 => (-128.0, 127.0, 8),
            DType::QU8 => (0.0, 255.0, 8),
            DType::QI16 => (-32_768.0, 32_767.0, 16),
            DType::QU16 => (0.0, 65_535.0, 16),
            DType::QI32 => (-2_147_483_648.0, 2_147_483_647.0, 32),
            other => return invalid!("dtype {other} is not quantized"),
        };
        Ok(Self { low, high, bits })
    }

    /// Half of its numbers if some are negative.
    fn half_range(self) -> f32 {
        if self.low < 0.0 { ((self.high - self.low + 1.0) / 2.0) as f32 } else { 0.0 }
    }
}

/// The mapping of ranges to quanta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuantMode {
    MinCombined,
    MinFirst,
    Scaled,
}

impl QuantMode {
    fn of(attrs: &Attrs<'_>) -> Result<Self> {
        match attrs.str_or("mode", "MIN_COMBINED")? {
            "MIN_COMBINED" => Ok(Self::MinCombined),
            "MIN_FIRST" => Ok(Self::MinFirst),
            "SCALED" => Ok(Self::Scaled),
            other => invalid!("mode {other} is not MIN_COMBINED, MIN_FIRST or SCALED"),
        }
    }
}

/// The elements in slices along an axis; one slice if there is no axis.
#[derive(Debug, Clone, Copy)]
struct QuantSlices {
    n: usize,
    inner: usize,
}

impl QuantSlices {
    /// The slices along `axis`, where -1 is none.
    fn new(shape: &Shape, axis: i64) -> Result<Self> {
        if axis == -1 {
            return Ok(Self { n: 1, inner: shape.n_elements() });
        }
        let at = usize::try_from(axis).ok().filter(|axis| *axis < shape.rank());
        let Some(at) = at else {
            return invalid!(
                "Axis must be less than input dimension({}), got {axis}",
                shape.rank()
            );
        };
        Ok(Self { n: shape[at], inner: shape[at + 1..].iter().product() })
    }

    /// Returns how many slices a tensor of this spec has; none if its shape is not known.
    fn count(spec: &Spec, axis: i64) -> usize {
        spec.shape().and_then(|shape| Self::new(&shape, axis).ok()).map_or(0, |slices| slices.n)
    }

    /// Calls `work` with runs of elements of one slice, and the slice's number.
    fn for_each<T, U>(self, x: &[T], out: &mut [U], mut work: impl FnMut(usize, &[T], &mut [U])) {
        let inner = self.inner.max(1);
        for (i, (x, out)) in x.chunks(inner).zip(out.chunks_mut(inner)).enumerate() {
            for (x, out) in x.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
                if is_stopped(4 * x.len()) {
                    return;
                }
                work(i % self.n.max(1), x, out);
            }
        }
    }
}

/// The range of each slice. Fails if there is not one for each.
fn ranges<'a>(
    low: View<'a>,
    high: View<'a>,
    n: usize,
) -> Result<impl Iterator<Item = (f32, f32)> + 'a> {
    if low.n_elements() != n || high.n_elements() != n {
        return invalid!(
            "expected {n} ranges, as many as slices, but got {} and {}",
            low.shape(),
            high.shape()
        );
    }
    let (low, high) = (low.as_slice::<f32>(), high.as_slice::<f32>());
    Ok(low.iter().copied().zip(high.iter().copied()))
}

/// `x` between the bounds, the upper one first.
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}
