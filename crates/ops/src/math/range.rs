//! `Range` and `LinSpace`: numbers at equal distances.

use half::{bf16, f16};

use super::arg::axis_value;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const RANGE: OpDef = OpDef::pure("Range", RowRule::Mixed, |_| Ok(Box::new(Range)));
pub(super) const LIN_SPACE: OpDef =
    OpDef::pure("LinSpace", RowRule::Mixed, |_| Ok(Box::new(LinSpace)));

/// From a start, by steps, as far as below a limit.
struct Range;

/// So many from a start to a stop, both included.
struct LinSpace;

impl Op for Range {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [start, limit, delta] = arity(inputs)?;
        let constants = (start.as_constant(), limit.as_constant(), delta.as_constant());
        let size = if let (Some(start), Some(limit), Some(delta)) = constants {
            Dim::of(size(start.view(), limit.view(), delta.view())?)
        } else {
            symbolic_size(start, limit, delta)
        };
        Ok(vec![Spec::new(start.dtype, [size])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (start, limit, delta) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let n = size(start, limit, delta)?;
        let shape = Shape::checked([i64::try_from(n).unwrap_or(i64::MAX)])?;
        let mut out = ctx.output(0, start.dtype(), &shape)?;
        match start.dtype() {
            DType::F32 => steps(one(start)?, one(delta)?, out.as_mut_slice(), |a: f32, b| a + b),
            DType::F64 => steps(one(start)?, one(delta)?, out.as_mut_slice(), |a: f64, b| a + b),
            DType::F16 => steps(one(start)?, one(delta)?, out.as_mut_slice(), |a: f16, b| a + b),
            DType::BF16 => steps(one(start)?, one(delta)?, out.as_mut_slice(), |a: bf16, b| a + b),
            dtype => for_integer!(dtype, T => {
                steps(one(start)?, one(delta)?, out.as_mut_slice(), T::wrapping_add);
            }),
        }
        Ok(())
    }
}

/// Writes `start`, `start + delta` and so on.
fn steps<T: Copy>(start: T, delta: T, out: &mut [T], add: impl Fn(T, T) -> T) {
    let mut value = start;
    for out in out.chunks_mut(AT_ONCE) {
        if is_stopped(out.len()) {
            return;
        }
        for out in out {
            *out = value;
            value = add(value, delta);
        }
    }
}

/// The only element.
fn one<T: Element>(view: View<'_>) -> Result<T> {
    match view.as_slice() {
        [value] => Ok(*value),
        _ => invalid!("expected a scalar but got shape {}", view.shape()),
    }
}

/// Returns the number of elements of the range. The texts are TensorFlow's (`sequence_ops.cc`).
fn size(start: View<'_>, limit: View<'_>, delta: View<'_>) -> Result<usize> {
    if limit.dtype() != start.dtype() || delta.dtype() != start.dtype() {
        return invalid!("expected inputs of one dtype");
    }
    if start.dtype().is_integer() {
        let (start, limit, delta) = (axis_value(start)?, axis_value(limit)?, axis_value(delta)?);
        let (start, limit, delta) = (i128::from(start), i128::from(limit), i128::from(delta));
        check(start.cmp(&limit), delta.cmp(&0))?;
        let size = (limit - start).unsigned_abs().div_ceil(delta.unsigned_abs());
        let too_large = "Requires ((limit - start) / delta) <= 2^63";
        return usize::try_from(size).map_err(|_| Error::InvalidArgument(too_large.to_owned()));
    }
    let number = |view| for_float!(start.dtype(), T => Ok(f64::from(one::<T>(view)?)));
    let (start, limit, delta) = (number(start)?, number(limit)?, number(delta)?);
    let order = |a: f64, b: f64| {
        let nan = || Error::InvalidArgument("the numbers of a range cannot be NaN".to_owned());
        a.partial_cmp(&b).ok_or_else(nan)
    };
    check(order(start, limit)?, order(delta, 0.0)?)?;
    let size = ((limit - start) / delta).abs().ceil();
    if size >= i64::MAX as f64 || size.is_nan() {
        return invalid!("Requires ((limit - start) / delta) <= {}", i64::MAX);
    }
    Ok(size as usize)
}

/// Fails if the steps lead away from the limit.
fn check(start_to_limit: std::cmp::Ordering, delta_to_zero: std::cmp::Ordering) -> Result<()> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match (start_to_limit, delta_to_zero) {
        (_, Equal) => invalid!("Requires delta != 0"),
        (Greater, Greater) => invalid!("Requires start <= limit when delta > 0"),
        (Less, Less) => invalid!("Requires start >= limit when delta < 0"),
        _ => Ok(()),
    }
}

/// The number of steps of one between sizes that are not known yet.
fn symbolic_size(start: &Spec, limit: &Spec, delta: &Spec) -> Dim {
    let first = |spec: &Spec| spec.sizes().and_then(|sizes| sizes.first().cloned());
    match (first(start), first(limit), first(delta)) {
        (Some(start), Some(limit), Some(Dim::Known(1))) => limit.minus(&start),
        _ => Dim::Unknown,
    }
}

impl Op for LinSpace {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [start, _, num] = arity(inputs)?;
        for input in inputs {
            input.require_rank(0)?;
        }
        let n = match num.sizes().and_then(|sizes| sizes.first().cloned()) {
            Some(Dim::Known(n)) if n <= 0 => return invalid!("Requires num > 0: {n}"),
            Some(dim) => dim,
            None => Dim::Unknown,
        };
        Ok(vec![Spec::new(start.dtype, [n])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (start, stop, num) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let n = axis_value(num)?;
        if n <= 0 {
            return invalid!("Requires num > 0: {n}");
        }
        let mut out = ctx.output(0, start.dtype(), &Shape::checked([n])?)?;
        match start.dtype() {
            DType::F32 => spaced(one::<f32>(start)?, one(stop)?, out.as_mut_slice()),
            DType::F64 => spaced(one::<f64>(start)?, one(stop)?, out.as_mut_slice()),
            DType::F16 => spaced(one::<f16>(start)?, one(stop)?, out.as_mut_slice()),
            DType::BF16 => spaced(one::<bf16>(start)?, one(stop)?, out.as_mut_slice()),
            other => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

/// Fills `out` from `start` to `stop`. The last is `stop` itself, however the steps were rounded.
fn spaced<T: num_traits::Float>(start: T, stop: T, out: &mut [T]) {
    let cast = |i: usize| T::from(i).unwrap_or_else(T::nan);
    let n = out.len();
    let step = if n > 1 { (stop - start) / cast(n - 1) } else { T::zero() };
    for (i, out) in out.iter_mut().enumerate() {
        if i % AT_ONCE == 0 && is_stopped(AT_ONCE) {
            return;
        }
        *out = match i {
            // Infinite steps are none from the first.
            0 => start,
            _ if i == n - 1 => stop,
            _ => start + step * cast(i),
        };
    }
}

#[cfg(test)]
mod tests {
    use tensor::Symbol;

    use super::*;

    #[test]
    fn a_range_up_to_a_size_is_as_long_as_that() {
        let n = Dim::symbol(Symbol(0));
        let one = |dim: &Dim| Spec::scalar(DType::I32).with_sizes([dim.clone()]);
        let inputs = [one(&Dim::Known(0)), one(&n), one(&Dim::Known(1))];
        assert_eq!(Range.infer(&inputs).unwrap()[0].dims(), Some(&[n][..]));
    }
}
