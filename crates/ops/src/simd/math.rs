//! Functions of a vector, to within a few units in the last place of `f32`.
//!
//! The polynomials are our own minimax fits; their relative errors before rounding are 3e-9
//! (`exp`), 2e-8 (`erf`) and 1e-9 (`tanh`).

use super::vector::Vector;

/// `e^x`, 0 far below and infinity far above; not a number stays so.
#[inline(always)]
pub(super) unsafe fn exp<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // Beyond these the result is 0 or infinity whatever the fraction.
        let x = x.at_most(V::splat(89.)).at_least(V::splat(-104.));
        let n = x.times(V::splat(std::f32::consts::LOG2_E)).round();
        // ln 2 in two pieces, the first with zeros at its end so that `n` times it is exact.
        let r = n.times_plus(V::splat(-0.693_359_4), x);
        let r = n.times_plus(V::splat(2.121_944_4e-4), r);
        let p = polynomial(
            r,
            &[0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_717_5, 0.001_381_459_6],
        );
        let p = p.times_plus(r.times(r), r).plus(V::splat(1.));
        // In two factors, because 2^n alone may be out of range where the product is not.
        let half = n.times(V::splat(0.5)).round();
        p.times(half.power_of_two()).times(n.minus(half).power_of_two())
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) unsafe fn sigmoid<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let one = V::splat(1.);
        one.over(one.plus(exp(V::splat(0.).minus(x))))
    }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) unsafe fn tanh<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let square = x.times(x);
        let p = polynomial(
            square,
            &[1., 0.136_803_61, 0.003_868_886, 2.801_873e-5, 3.061_217_8e-8, -1.222_366e-11],
        );
        let q =
            polynomial(square, &[1., 0.470_136_94, 0.027_247_882, 3.939_615_6e-4, 1.288_154_7e-6]);
        one_beyond(9.01, x, x.times(p).over(q))
    }
}

/// The error function.
#[inline(always)]
pub(super) unsafe fn erf<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let square = x.times(x);
        let p = polynomial(
            square,
            &[
                std::f32::consts::FRAC_2_SQRT_PI,
                0.190_396_88,
                0.052_747_276,
                0.003_765_158_8,
                2.848_648_6e-4,
                2.050_061_8e-6,
            ],
        );
        let q = polynomial(
            square,
            &[1., 0.502_067_57, 0.114_104_986, 0.014_968_302, 0.001_162_410_5, 3.809_052e-5],
        );
        one_beyond(3.92, x, x.times(p).over(q))
    }
}

/// `y`, or one with the sign of `x` where `x` is beyond `limit`; never beyond one.
#[inline(always)]
unsafe fn one_beyond<V: Vector>(limit: f32, x: V, y: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (one, minus_one) = (V::splat(1.), V::splat(-1.));
        let size = x.at_least(V::splat(0.).minus(x));
        let sign = x.at_most(one).at_least(minus_one);
        let inside = y.at_most(one).at_least(minus_one);
        sign.where_negative(V::splat(limit).minus(size), inside)
    }
}

/// The polynomial with these coefficients, the constant one first.
#[inline(always)]
unsafe fn polynomial<V: Vector, const N: usize>(x: V, coefficients: &[f32; N]) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut sum = V::splat(coefficients[N - 1]);
        for i in (0..N - 1).rev() {
            sum = sum.times_plus(x, V::splat(coefficients[i]));
        }
        sum
    }
}
