//! `QuantizeAndDequantizeV2` to `V4`: floats rounded to what quanta can tell apart, following
//! `quantize_and_dequantize_op.h`.

use num_traits::Float;

use super::QuantSlices;
use crate::error::unsupported;
use crate::math::arg::axis_value;
use crate::prelude::*;

struct Again {
    signed: bool,
    range_given: bool,
    ties_to_even: bool,
    narrow_range: bool,
    axis: i64,
    /// The bits of a quantum; `None` if an input says it.
    bits: Option<i64>,
}

pub(super) fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let bits = attrs.int_or("num_bits", 8)?;
    check_bits(bits, attrs.bool_or("signed_input", true)?)?;
    let ties_to_even = match attrs.str_or("round_mode", "HALF_TO_EVEN")? {
        "HALF_TO_EVEN" => true,
        "HALF_UP" => false,
        other => {
            return invalid!("Round mode string must be 'HALF_TO_EVEN' or 'HALF_UP', is '{other}'");
        }
    };
    let range_given = attrs.bool_or("range_given", false)?;
    Ok(Box::new(Again { ties_to_even, range_given, bits: Some(bits), ..common(attrs)? }))
}

pub(super) fn build_v3(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    Ok(Box::new(common(attrs)?))
}

fn common(attrs: &Attrs<'_>) -> Result<Again> {
    Ok(Again {
        signed: attrs.bool_or("signed_input", true)?,
        range_given: attrs.bool_or("range_given", true)?,
        ties_to_even: true,
        narrow_range: attrs.bool_or("narrow_range", false)?,
        axis: attrs.int_or("axis", -1)?,
        bits: None,
    })
}

fn check_bits(bits: i64, signed: bool) -> Result<()> {
    if bits < 1 || bits >= if signed { 62 } else { 63 } {
        return invalid!("num_bits is out of range: {bits} with signed_input {signed}");
    }
    Ok(())
}

impl Op for Again {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let expected = if self.bits.is_some() { 3 } else { 4 };
        if inputs.len() != expected {
            return invalid!("expected {expected} inputs but got {}", inputs.len());
        }
        Ok(vec![inputs[0].with_dtype(inputs[0].dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        match ctx.input(0).dtype() {
            DType::F32 => self.round::<f32>(ctx),
            DType::F64 => self.round::<f64>(ctx),
            other => unsupported!("dtype {other} is not supported here"),
        }
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        // A range and a scale for each slice.
        let pair = inputs[0].dtype.size() * 2;
        2 * Scratch::bytes_of::<u8>(QuantSlices::count(&inputs[0], self.axis) * pair)
    }
}

impl Again {
    fn round<T: Element + Float>(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        if self.bits.is_none() && ctx.input(3).shape().rank() != 0 {
            return invalid!("The `num_bits` tensor should be a scalar");
        }
        let bits = self.bits.map_or_else(|| axis_value(ctx.input(3)), Ok)?;
        check_bits(bits, self.signed)?;
        let x: &[T] = input.as_slice();
        let slices = QuantSlices::new(input.shape(), self.axis)?;
        let mut scratch = ctx.scratch();
        let mut ranges: Part<'_, [T; 2]> = scratch.part(slices.n)?;
        match self.range_given {
            true => self.given(ctx, &mut ranges)?,
            false => found(slices, x, &mut ranges),
        }
        let mut scales: Part<'_, [T; 2]> = scratch.part(slices.n)?;
        let pairs = scales.iter_mut().zip(ranges.iter_mut());
        pairs.for_each(|(scale, range)| *scale = self.scale(bits, range));
        let mut out = ctx.output(0, input.dtype(), input.shape())?;
        slices.for_each(x, out.as_mut_slice::<T>(), |slice, x, out| {
            let ([low, high], [scale, inverse]) = (ranges[slice], scales[slice]);
            for (x, out) in x.iter().zip(out) {
                let x = if self.range_given { x.min(high).max(low) } else { *x };
                let half = T::one() / (T::one() + T::one());
                let rounded = match self.ties_to_even {
                    true => ties_to_even(x * scale),
                    false => (x * scale + half).floor(),
                };
                *out = rounded * inverse;
            }
        });
        Ok(())
    }

    fn given<T: Element + Float>(&self, ctx: &Ctx<'_>, ranges: &mut [[T; 2]]) -> Result<()> {
        let (low, high, n) = (ctx.input(1), ctx.input(2), ranges.len());
        if low.n_elements() != n || high.n_elements() != n {
            return invalid!("Shape must be of {n} elements for input_min and input_max");
        }
        let pairs = low.as_slice::<T>().iter().copied().zip(high.as_slice::<T>().iter().copied());
        ranges.iter_mut().zip(pairs).for_each(|(range, (low, high))| *range = [low, high]);
        if !ranges.iter().all(|[low, high]| low <= high) {
            return invalid!("Invalid range: input_min > input_max");
        }
        Ok(())
    }

    /// The factor to quanta and back. Widens the end of the range that does not decide.
    fn scale<T: Float>(&self, bits: i64, range: &mut [T; 2]) -> [T; 2] {
        let cast = |x: i64| T::from(x).unwrap_or_else(T::nan);
        let bits = bits as u32;
        let (from, to) = match (self.signed, self.narrow_range) {
            (true, true) => (-(1i64 << (bits - 1)) + 1, (1i64 << (bits - 1)) - 1),
            (true, false) => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            (false, _) => (0, (1i64 << bits) - 1),
        };
        let (from, to) = (cast(from), cast(to));
        let [low, high] = *range;
        let from_low = if from * low > T::zero() { from / low } else { T::max_value() };
        let from_high = if to * high > T::zero() { to / high } else { T::max_value() };
        if from_low < from_high {
            let inverse = low / from;
            range[1] = to * inverse;
            [from_low, inverse]
        } else {
            let inverse = high / to;
            range[0] = from * inverse;
            [from_high, inverse]
        }
    }
}

/// Writes the least and the largest element of each slice.
fn found<T: Element + Float>(slices: QuantSlices, x: &[T], ranges: &mut [[T; 2]]) {
    ranges.fill([T::infinity(), T::neg_infinity()]);
    for (i, x) in x.chunks(slices.inner.max(1)).enumerate() {
        let [low, high] = &mut ranges[i % slices.n.max(1)];
        for x in x.chunks(AT_ONCE) {
            if is_stopped(x.len()) {
                return;
            }
            for x in x {
                (*low, *high) = (low.min(*x), high.max(*x));
            }
        }
    }
}

fn ties_to_even<T: Float>(x: T) -> T {
    let two = T::one() + T::one();
    let floor = x.floor();
    let rest = x - floor;
    let half = T::one() / two;
    if rest > half || (rest == half && (floor / two).floor() * two != floor) {
        floor + T::one()
    } else {
        floor
    }
}
