//! Bessel functions in `f64`, of orders 0 and 1: those of the first kind and the modified ones.

use std::f64::consts::PI;

/// The argument at which the sums of positive terms give way to the expansion for large arguments,
/// which is then exact to the last digit.
const LARGE: f64 = 30.0;

/// `exp(-|x|) I0(x)`.
pub(super) fn i0e(x: f64) -> f64 {
    let x = x.abs();
    if x > LARGE { scaled_large(0.0, x) } else { series(0, x) * (-x).exp() }
}

/// `exp(-|x|) I1(x)`.
pub(super) fn i1e(x: f64) -> f64 {
    let size = x.abs();
    let value =
        if size > LARGE { scaled_large(1.0, size) } else { series(1, size) * (-size).exp() };
    if x < 0.0 { -value } else { value }
}

/// `I0(x)`.
pub(super) fn i0(x: f64) -> f64 {
    i0e(x) * x.abs().exp()
}

/// `I1(x)`.
pub(super) fn i1(x: f64) -> f64 {
    i1e(x) * x.abs().exp()
}

/// `exp(x) K0(x)`; infinite at 0 and below, as in Eigen.
pub(super) fn k0e(x: f64) -> f64 {
    second_kind(0.0, x, |_| 1.0)
}

/// `exp(x) K1(x)`; infinite at 0 and below, as in Eigen.
pub(super) fn k1e(x: f64) -> f64 {
    second_kind(1.0, x, f64::cosh)
}

/// `K0(x)`.
pub(super) fn k0(x: f64) -> f64 {
    k0e(x) * (-x).exp()
}

/// `K1(x)`.
pub(super) fn k1(x: f64) -> f64 {
    k1e(x) * (-x).exp()
}

/// `J0(x)`; NaN at infinity, as in Eigen.
pub(super) fn j0(x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { libm::j0(x) }
}

/// `J1(x)`; NaN at infinity, as in Eigen.
pub(super) fn j1(x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { libm::j1(x) }
}

/// `Y0(x)`; negatively infinite at 0 and below and NaN at infinity, as in Eigen.
pub(super) fn y0(x: f64) -> f64 {
    match () {
        () if x <= 0.0 => f64::NEG_INFINITY,
        () if x.is_infinite() => f64::NAN,
        () => libm::y0(x),
    }
}

/// `Y1(x)`; negatively infinite at 0 and below and NaN at infinity, as in Eigen.
pub(super) fn y1(x: f64) -> f64 {
    match () {
        () if x <= 0.0 => f64::NEG_INFINITY,
        () if x.is_infinite() => f64::NAN,
        () => libm::y1(x),
    }
}

/// `Y1(x)` of the narrower floats, for which Eigen has NaN at 0.
pub(super) fn y1_narrow(x: f32) -> f32 {
    if x == 0.0 { f32::NAN } else { y1(f64::from(x)) as f32 }
}

/// The power series of the modified function of order 0 or 1; all its terms are positive.
fn series(order: i32, x: f64) -> f64 {
    let square = x * x / 4.0;
    let mut term = (x / 2.0).powi(order);
    let mut sum = term;
    for k in 1..200 {
        term *= square / f64::from(k * (k + order));
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

/// The expansion for large `x`, times `exp(-x)`.
fn scaled_large(order: f64, x: f64) -> f64 {
    if x.is_infinite() { 0.0 } else { expansion(order, x) / (2.0 * PI * x).sqrt() }
}

/// The sum of the expansion for large `x`; for negative ones that of the second kind.
fn expansion(order: f64, x: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..60 {
        let odd = f64::from(2 * k - 1);
        let next = term * (odd * odd - 4.0 * order * order) / (8.0 * x * f64::from(k));
        if next.abs() < 1e-17 || next.abs() > f64::abs(term) {
            break;
        }
        term = next;
        sum += term;
    }
    sum
}

/// `∫ exp(-x (cosh t - 1)) weight(t) dt` over the positive numbers. The trapezoidal rule is exact
/// to the last digit here, since the integrand falls off doubly exponentially. The peak of large
/// arguments is too narrow for it.
fn second_kind(order: f64, x: f64, weight: fn(f64) -> f64) -> f64 {
    const STEP: f64 = 0.125;
    if x.is_nan() {
        return f64::NAN;
    }
    if x <= 0.0 {
        return f64::INFINITY;
    }
    if x > LARGE {
        return expansion(order, -x) * (PI / (2.0 * x)).sqrt();
    }
    // Larger arguments have a narrower peak.
    let step = STEP.min(STEP * (8.0 / x).sqrt());
    let last = 1.0 + 40.0 / x;
    let end = last.acosh() + 2.0;
    let n = (end / step).ceil() as usize;
    let mut sum = 0.5;
    for i in 1..=n {
        let t = i as f64 * step;
        // cosh t - 1, without loss for small t.
        let half = (t / 2.0).sinh();
        sum += (-2.0 * x * half * half).exp() * weight(t);
    }
    sum * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-14 * expected.abs(), "{got} instead of {expected}");
    }

    #[test]
    fn values_are_those_of_tables() {
        check(i0(1.0), 1.266_065_877_752_008_2);
        check(i1(1.0), 0.565_159_103_992_485);
        check(i0e(50.0), 0.056_561_626_647_454_184);
        check(k0(1.0), 0.421_024_438_240_708_34);
        check(k1(0.1), 9.853_844_780_870_606);
        check(k0e(100.0), 0.125_175_621_659_126_6);
    }
}
