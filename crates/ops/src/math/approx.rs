//! Transcendental functions in `f32` without branches and without calls, so that a loop over them
//! becomes vector instructions. Each stays within a few units in the last place of the true value;
//! the tests say how far.
//!
//! The coefficients are our own minimax fits. Nothing here uses a fused multiply-add: the answers
//! are the same on all machines.

/// Adding and subtracting it rounds to the nearest integer, whose low bits then stand in the sum.
const ROUND: f32 = 12_582_912.0;
/// The upper bits of ln 2, such that their product with a small integer is exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// What `LN2_HIGH` lacks.
const LN2_LOW: f32 = -2.121_944_4e-4;

/// The exponential function.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp_sum(x, 0.0)
}

/// The exponential of `x + tail`, where `tail` is small.
#[inline(always)]
fn exp_sum(x: f32, tail: f32) -> f32 {
    // Beyond these the result is 0 and infinity anyway. A comparison with NaN is false, so it
    // stays.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let (n, r) = reduce(x);
    let r = r + tail;
    let q = 0.001_395_171_7;
    let q = q * r + 0.008_369_599;
    let q = q * r + 0.041_666_187;
    let q = q * r + 0.166_665_12;
    let q = q * r + 0.5;
    scale(1.0 + (r + r * r * q), n)
}

/// `exp(x) - 1`, also close to zero.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let clamped = if x < -20.0 { -20.0 } else { x };
    let clamped = if clamped > 89.0 { 89.0 } else { clamped };
    let (n, r) = reduce(clamped);
    let q = 0.001_394_759_5;
    let q = q * r + 0.008_367_247;
    let q = q * r + 0.041_666_266;
    let q = q * r + 0.166_665_38;
    let q = q * r + 0.5;
    let p = r + r * r * q;
    // Half of 2^n, because 2^128 would be infinite before it is multiplied with less than one.
    let half = f32::from_bits(((n + 126) << 23).cast_unsigned());
    let result = (half * p + (half - 0.5)) * 2.0;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { result }
}

/// The natural logarithm.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    // Subnormal numbers have no exponent of their own.
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bias = if tiny { 23.0 } else { 0.0 };
    // The mantissa in [sqrt(1/2), sqrt(2)): its logarithm and the exponent never cancel out.
    let bits = scaled.to_bits().wrapping_sub(0x3f35_04f3).cast_signed();
    let exponent = (bits >> 23) as f32 - bias;
    let mantissa = f32::from_bits((bits & 0x007f_ffff).cast_unsigned() + 0x3f35_04f3);
    let f = mantissa - 1.0;
    let q = -0.078_608_74;
    let q = q * f + 0.128_834_7;
    let q = q * f - 0.131_291_14;
    let q = q * f + 0.141_809_61;
    let q = q * f - 0.166_244_98;
    let q = q * f + 0.200_022_95;
    let q = q * f - 0.250_008_1;
    let q = q * f + 0.333_333_16;
    let square = f * f;
    let low = exponent * LN2_LOW + square * f * q - 0.5 * square;
    let result = exponent * LN2_HIGH + (f + low);
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x >= 0.0 { result } else { f32::NAN }
}

/// `log(1 + x)`, also close to zero.
#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // What rounding took from the sum, it took from both factors of the quotient.
    let result = log(sum) * (x / (sum - 1.0));
    let result = if sum == 1.0 || x == f32::INFINITY { x } else { result };
    if x == -1.0 { f32::NEG_INFINITY } else { result }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 10.0 { 10.0 } else { t };
    let e = expm1(2.0 * t);
    (e / (e + 2.0)).copysign(x)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `log(1 + exp(x))`, as `softplus_op.h` splits it.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    // The logarithm of epsilon, plus 2.
    const THRESHOLD: f32 = -13.942_385;
    let e = exp(x);
    let middle = log1p(e);
    let result = if x < THRESHOLD { e } else { middle };
    if x > -THRESHOLD { x } else { result }
}

/// The error function.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let t = x.abs();
    let large = (1.0 - erfc_large(t)).copysign(x);
    if t < 1.0 { erf_small(x) } else { large }
}

/// One minus the error function, precise also where that is tiny.
#[inline(always)]
pub(crate) fn erfc(x: f32) -> f32 {
    let t = x.abs();
    let tail = erfc_large(t);
    let large = if x < 0.0 { 2.0 - tail } else { tail };
    if t < 0.85 { 1.0 - erf_small(x) } else { large }
}

/// The error function for `|x| <= 1`.
#[inline(always)]
fn erf_small(x: f32) -> f32 {
    let u = x * x;
    let p = 7.889_119e-5;
    let p = p * u - 8.020_841e-4;
    let p = p * u + 0.005_189_535;
    let p = p * u - 0.026_854_444;
    let p = p * u + 0.112_836;
    let p = p * u - 0.376_126_26;
    let p = p * u + std::f32::consts::FRAC_2_SQRT_PI;
    p * x
}

/// `erfc(t)` for `t >= 0.8`: `exp(-t²)/(1 + 2t)` times a polynomial in `(t - 2)/(t + 2)`.
#[inline(always)]
fn erfc_large(t: f32) -> f32 {
    let t = if t > 10.2 { 10.2 } else { t };
    let q = (t - 2.0) / (t + 2.0);
    let p = -0.001_503_896_9;
    let p = p * q + 0.001_098_169_2;
    let p = p * q + 0.008_762_037;
    let p = p * q - 0.008_009_882;
    let p = p * q - 0.054_225_57;
    let p = p * q + 0.164_049_94;
    let p = p * q - 0.166_030_17;
    let p = p * q - 0.092_763_804;
    let p = p * q + 1.276_978_4;
    // The square in two parts, or its rounding would show in the exponential.
    let high = f32::from_bits(t.to_bits() & 0xffff_f000);
    let tail = (high - t) * (high + t);
    exp_sum(-high * high, tail) * p / (1.0 + 2.0 * t)
}

/// `x = n·ln 2 + r` with `|r| <= ln 2 / 2`.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let whole = rounded - ROUND;
    (n, (x - whole * LN2_HIGH) - whole * LN2_LOW)
}

/// `x·2^n` for `-253 < n < 255`, in two steps because neither power need be a number.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let first = f32::from_bits(half.wrapping_add(127).cast_unsigned() << 23);
    let second = f32::from_bits((n - half).wrapping_add(127).cast_unsigned() << 23);
    x * first * second
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest distance from `exact`, in units of `relative`, over `range` and its negation.
    #[track_caller]
    fn check(f: fn(f32) -> f32, exact: fn(f64) -> f64, range: (f32, f32), relative: f64) {
        let (low, high) = range;
        for i in 0..=200_000 {
            let share = f64::from(i) / 200_000.0;
            let linear = f64::from(low) + share * f64::from(high - low);
            // Small arguments as well: the same range by magnitude.
            let log = linear.signum() * 1e-6f64.powf(1.0 - share) * linear.abs();
            for x in [linear as f32, log as f32] {
                let (got, want) = (f64::from(f(x)), exact(f64::from(x)));
                let allowed = relative * want.abs() + 1.5e-45;
                let close = got == want || (got - want).abs() <= allowed;
                assert!(close, "f({x}) = {got}, not {want}");
            }
        }
    }

    #[test]
    fn exponentials_are_precise() {
        check(exp, f64::exp, (-87.0, 88.7), 1.5e-7);
        check(exp, f64::exp, (-105.0, -87.0), 3e-1);
        check(expm1, f64::exp_m1, (-20.0, 88.7), 3e-7);
        check(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), (-80.0, 40.0), 3e-7);
        check(tanh, f64::tanh, (-15.0, 15.0), 4e-7);
        // TensorFlow leaves out the second term of the series below the threshold, and so do we.
        check(softplus, |x| x.exp().ln_1p(), (-80.0, 40.0), 6e-7);
    }

    #[test]
    fn logarithms_are_precise() {
        check(log, f64::ln, (1e-38, 1e38), 1.5e-7);
        check(log, f64::ln, (1e-44, 1e-37), 1.5e-7);
        check(log, f64::ln, (0.5, 2.0), 1.5e-7);
        check(log1p, f64::ln_1p, (-0.999, 100.0), 3e-7);
    }

    #[test]
    fn error_functions_are_precise() {
        check(erf, libm::erf, (-5.0, 5.0), 3e-7);
        check(erfc, libm::erfc, (-5.0, 9.0), 6e-7);
    }

    #[test]
    fn ends_and_nan_stay_what_they_are() {
        let inf = f32::INFINITY;
        for f in [exp, expm1, log, log1p, tanh, sigmoid, softplus, erf, erfc] {
            assert!(f(f32::NAN).is_nan());
        }
        assert_eq!([exp(-inf), exp(inf), expm1(-inf), expm1(inf)], [0.0, inf, -1.0, inf]);
        assert_eq!([log(0.0), log(inf), log1p(-1.0), log1p(inf)], [-inf, inf, -inf, inf]);
        assert!(log(-1.0).is_nan() && log1p(-2.0).is_nan());
        assert_eq!([tanh(-inf), tanh(inf), sigmoid(-inf), sigmoid(inf)], [-1.0, 1.0, 0.0, 1.0]);
        assert_eq!([erf(-inf), erf(inf), erfc(-inf), erfc(inf)], [-1.0, 1.0, 2.0, 0.0]);
        assert_eq!([softplus(-inf), softplus(inf)], [0.0, inf]);
        assert!(tanh(-0.0).is_sign_negative() && expm1(-0.0).is_sign_negative());
    }
}
