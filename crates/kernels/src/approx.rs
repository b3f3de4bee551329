//! Transcendental functions in `f32` without branches and without calls, so that a loop over them
//! becomes vector instructions. Each stays within a few units in the last place of the true value;
//! the tests say how far.
//!
//! The coefficients are our own minimax fits. `M` says how a product is added to, which depends on
//! the machine.

use super::Madd;

/// Adding and subtracting it rounds to the nearest integer, whose low bits then stand in the sum.
const ROUND: f32 = 12_582_912.0;
/// The upper bits of ln 2, such that their product with a small integer is exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// The lower bits of ln 2, which `LN2_HIGH` lacks.
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Beyond this the error function is one, to the last digit.
const ERF_IS_ONE: f32 = 3.93;

/// The exponential function.
#[inline(always)]
pub fn exp<M: Madd>(x: f32) -> f32 {
    exp_sum::<M>(x, 0.0)
}

/// The exponential of `x + tail`, where `tail` is small.
#[inline(always)]
fn exp_sum<M: Madd>(x: f32, tail: f32) -> f32 {
    // Beyond these the result is 0 and infinity anyway. A comparison with NaN is false: it stays.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let (n, r) = reduce::<M>(x);
    let r = r + tail;
    let q = 0.001_395_171_7;
    let q = M::madd(q, r, 0.008_369_599);
    let q = M::madd(q, r, 0.041_666_187);
    let q = M::madd(q, r, 0.166_665_12);
    let q = M::madd(q, r, 0.5);
    scale(1.0 + M::madd(r * r, q, r), n)
}

/// `exp(x) - 1`, also close to zero.
#[inline(always)]
pub fn expm1<M: Madd>(x: f32) -> f32 {
    let clamped = if x < -20.0 { -20.0 } else { x };
    let clamped = if clamped > 89.0 { 89.0 } else { clamped };
    let (n, r) = reduce::<M>(clamped);
    let q = 0.001_394_759_5;
    let q = M::madd(q, r, 0.008_367_247);
    let q = M::madd(q, r, 0.041_666_266);
    let q = M::madd(q, r, 0.166_665_38);
    let q = M::madd(q, r, 0.5);
    let p = M::madd(r * r, q, r);
    // Half of 2^n, because 2^128 would be infinite before it is multiplied with less than one.
    let half = f32::from_bits(((n + 126) << 23).cast_unsigned());
    let result = M::madd(half, p, half - 0.5) * 2.0;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { result }
}

/// The natural logarithm.
#[inline(always)]
pub fn log<M: Madd>(x: f32) -> f32 {
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
    let q = M::madd(q, f, 0.128_834_7);
    let q = M::madd(q, f, -0.131_291_14);
    let q = M::madd(q, f, 0.141_809_61);
    let q = M::madd(q, f, -0.166_244_98);
    let q = M::madd(q, f, 0.200_022_95);
    let q = M::madd(q, f, -0.250_008_1);
    let q = M::madd(q, f, 0.333_333_16);
    let square = f * f;
    let low = M::madd(exponent, LN2_LOW, M::madd(square * f, q, -0.5 * square));
    let result = M::madd(exponent, LN2_HIGH, f + low);
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x >= 0.0 { result } else { f32::NAN }
}

/// `log(1 + x)`, also close to zero.
#[inline(always)]
pub fn log1p<M: Madd>(x: f32) -> f32 {
    let sum = 1.0 + x;
    // What rounding took from the sum, it took from both factors of the quotient.
    let result = log::<M>(sum) * (x / (sum - 1.0));
    let result = if sum == 1.0 || x == f32::INFINITY { x } else { result };
    if x == -1.0 { f32::NEG_INFINITY } else { result }
}

/// The hyperbolic tangent: a quotient of polynomials of the square.
#[inline(always)]
pub fn tanh<M: Madd>(x: f32) -> f32 {
    // Beyond this it is one.
    let t = within(x, 9.02);
    let u = t * t;
    let p = 1.331_910_2e-8;
    let p = M::madd(p, u, 2.058_350_6e-5);
    let p = M::madd(p, u, 0.003_494_036_2);
    let p = M::madd(p, u, 0.133_797_2);
    let p = M::madd(p, u, 1.0);
    let q = 7.762_032_5e-7;
    let q = M::madd(q, u, 3.283_095_4e-4);
    let q = M::madd(q, u, 0.025_871_08);
    let q = M::madd(q, u, 0.467_130_33);
    let q = M::madd(q, u, 1.0);
    within(t * p / q, 1.0)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid<M: Madd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<M>(-x))
}

/// `log(1 + exp(x))`, as `softplus_op.h` splits it.
#[inline(always)]
pub fn softplus<M: Madd>(x: f32) -> f32 {
    // The logarithm of epsilon, plus 2.
    const THRESHOLD: f32 = -13.942_385;
    let e = exp::<M>(x);
    let middle = log1p::<M>(e);
    let result = if x < THRESHOLD { e } else { middle };
    if x > -THRESHOLD { x } else { result }
}

/// The error function: a quotient of polynomials of the square.
#[inline(always)]
pub fn erf<M: Madd>(x: f32) -> f32 {
    let t = within(x, ERF_IS_ONE);
    let u = t * t;
    let p = 2.041_958_8e-6;
    let p = M::madd(p, u, 2.848_084e-4);
    let p = M::madd(p, u, 0.003_779_629);
    let p = M::madd(p, u, 0.052_790_35);
    let p = M::madd(p, u, 0.190_784_36);
    let p = M::madd(p, u, std::f32::consts::FRAC_2_SQRT_PI);
    let q = 3.800_394e-5;
    let q = M::madd(q, u, 0.001_165_216_2);
    let q = M::madd(q, u, 0.014_997_48);
    let q = M::madd(q, u, 0.114_257_74);
    let q = M::madd(q, u, 0.502_410_95);
    let q = M::madd(q, u, 1.0);
    let result = within(t * p / q, 1.0);
    let result = if x >= ERF_IS_ONE { 1.0 } else { result };
    if x <= -ERF_IS_ONE { -1.0 } else { result }
}

/// One minus the error function, precise also where that is tiny: `exp(-x²)/(1 + 2x)` times a
/// polynomial in `(x - 2)/(x + 2)`, for the size of `x`.
#[inline(always)]
pub fn erfc<M: Madd>(x: f32) -> f32 {
    let t = x.abs();
    // Beyond this it is zero.
    let t = if t > 10.2 { 10.2 } else { t };
    let (above, below) = (t + 2.0, M::madd(2.0, t, 1.0));
    let inverse = 1.0 / (above * below);
    let q = (t - 2.0) * below * inverse;
    let p = -3.997_153_5e-4;
    let p = M::madd(p, q, -0.001_228_858_4);
    let p = M::madd(p, q, 0.001_313_069_5);
    let p = M::madd(p, q, 0.008_630_959);
    let p = M::madd(p, q, -0.008_059_806);
    let p = M::madd(p, q, -0.054_204_18);
    let p = M::madd(p, q, 0.164_055_33);
    let p = M::madd(p, q, -0.166_031_42);
    let p = M::madd(p, q, -0.092_763_98);
    let p = M::madd(p, q, 1.276_978_4);
    // The square in two parts, or its rounding would show in the exponential.
    let high = f32::from_bits(t.to_bits() & 0xffff_f000);
    let tail = (high - t) * (high + t);
    let result = exp_sum::<M>(-high * high, tail) * (p * above * inverse);
    if x < 0.0 { 2.0 - result } else { result }
}

/// `x`, or the bound of its sign if it is beyond that. A comparison with NaN is false: it stays.
#[inline(always)]
fn within(x: f32, bound: f32) -> f32 {
    let x = if x > bound { bound } else { x };
    if x < -bound { -bound } else { x }
}

/// `x = n·ln 2 + r` with `|r| <= ln 2 / 2`.
#[inline(always)]
fn reduce<M: Madd>(x: f32) -> (i32, f32) {
    let rounded = M::madd(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let whole = rounded - ROUND;
    (n, M::madd(whole, -LN2_LOW, M::madd(whole, -LN2_HIGH, x)))
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
    use super::super::{Fused, Rounded};
    use super::*;

    /// Both ways to add to a product.
    macro_rules! both {
        ($f:ident) => {
            [$f::<Rounded> as fn(f32) -> f32, $f::<Fused>]
        };
    }

    /// The largest distance from `exact`, in units of `relative`, over `range` and its negation.
    #[track_caller]
    fn check(both: [fn(f32) -> f32; 2], exact: fn(f64) -> f64, range: (f32, f32), relative: f64) {
        let (low, high) = range;
        for i in 0..=200_000 {
            let share = f64::from(i) / 200_000.0;
            let linear = f64::from(low) + share * f64::from(high - low);
            // Small arguments as well: the same range by magnitude.
            let log = linear.signum() * 1e-6f64.powf(1.0 - share) * linear.abs();
            for (x, f) in [linear, log].iter().flat_map(|x| both.map(|f| (*x as f32, f))) {
                let (got, want) = (f64::from(f(x)), exact(f64::from(x)));
                let allowed = relative * want.abs() + 1.5e-45;
                let close = got == want || (got - want).abs() <= allowed;
                assert!(close, "f({x}) = {got}, not {want}");
            }
        }
    }

    #[test]
    fn exponentials_are_precise() {
        check(both!(exp), f64::exp, (-87.0, 88.7), 1.5e-7);
        check(both!(exp), f64::exp, (-105.0, -87.0), 3e-1);
        check(both!(expm1), f64::exp_m1, (-20.0, 88.7), 3e-7);
        check(both!(sigmoid), |x| 1.0 / (1.0 + (-x).exp()), (-80.0, 40.0), 3e-7);
        check(both!(tanh), f64::tanh, (-15.0, 15.0), 4e-7);
        // TensorFlow leaves out the second term of the series below the threshold, and so do we.
        check(both!(softplus), |x| x.exp().ln_1p(), (-80.0, 40.0), 6e-7);
    }

    #[test]
    fn logarithms_are_precise() {
        check(both!(log), f64::ln, (1e-38, 1e38), 1.5e-7);
        check(both!(log), f64::ln, (1e-44, 1e-37), 1.5e-7);
        check(both!(log), f64::ln, (0.5, 2.0), 1.5e-7);
        check(both!(log1p), f64::ln_1p, (-0.999, 100.0), 3e-7);
    }

    #[test]
    fn error_functions_are_precise() {
        check(both!(erf), libm::erf, (-5.0, 5.0), 4e-7);
        check(both!(erfc), libm::erfc, (-5.0, 9.0), 6e-7);
    }

    #[test]
    fn ends_and_nan_stay_what_they_are() {
        ends::<Rounded>();
        ends::<Fused>();
    }

    fn all<M: Madd>() -> [fn(f32) -> f32; 9] {
        [
            exp::<M>,
            expm1::<M>,
            log::<M>,
            log1p::<M>,
            tanh::<M>,
            sigmoid::<M>,
            softplus::<M>,
            erf::<M>,
            erfc::<M>,
        ]
    }

    fn ends<M: Madd>() {
        let inf = f32::INFINITY;
        for f in all::<M>() {
            assert!(f(f32::NAN).is_nan());
        }
        assert_eq!(
            [exp::<M>(-inf), exp::<M>(inf), expm1::<M>(-inf), expm1::<M>(inf)],
            [0.0, inf, -1.0, inf]
        );
        assert_eq!(
            [log::<M>(0.0), log::<M>(inf), log1p::<M>(-1.0), log1p::<M>(inf)],
            [-inf, inf, -inf, inf]
        );
        assert!(log::<M>(-1.0).is_nan() && log1p::<M>(-2.0).is_nan());
        assert_eq!(
            [tanh::<M>(-inf), tanh::<M>(inf), sigmoid::<M>(-inf), sigmoid::<M>(inf)],
            [-1.0, 1.0, 0.0, 1.0]
        );
        assert_eq!(
            [erf::<M>(-inf), erf::<M>(inf), erfc::<M>(-inf), erfc::<M>(inf)],
            [-1.0, 1.0, 2.0, 0.0]
        );
        assert_eq!([softplus::<M>(-inf), softplus::<M>(inf)], [0.0, inf]);
        assert!(tanh::<M>(-0.0).is_sign_negative() && expm1::<M>(-0.0).is_sign_negative());
    }
}
