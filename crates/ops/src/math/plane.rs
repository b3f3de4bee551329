//! Functions of complex numbers, with the branches of C and its answers at zero, infinity and NaN.
//!
//! Follows Annex G of C11, and Eigen (`MathFunctionsImpl.h`, `SpecialFunctionsImpl.h`) for the
//! functions that C does not have.

use num_complex::Complex;
use num_traits::{Float, FloatConst};

/// A part of a complex number.
pub(super) trait Part: Float + FloatConst {}

impl<T: Float + FloatConst> Part for T {}

/// `(-im, re)`: the number times `i`.
fn turned<T: Part>(z: Complex<T>) -> Complex<T> {
    Complex::new(-z.im, z.re)
}

/// `(im, -re)`: the number times `-i`.
fn turned_back<T: Part>(z: Complex<T>) -> Complex<T> {
    Complex::new(z.im, -z.re)
}

/// A product in which an exact zero wins over what is not finite.
fn times<T: Part>(a: T, b: T) -> T {
    match () {
        () if b == T::zero() => b * a.signum_or_one(),
        () if a == T::zero() && !b.is_finite() => a,
        () => a * b,
    }
}

/// The sign of a number that may be NaN.
trait Sign {
    fn signum_or_one(self) -> Self;
}

impl<T: Part> Sign for T {
    fn signum_or_one(self) -> T {
        if self.is_sign_negative() { -T::one() } else { T::one() }
    }
}

pub(super) fn cosh<T: Part>(z: Complex<T>) -> Complex<T> {
    if z.re.is_infinite() && !z.im.is_finite() {
        return Complex::new(z.re.abs(), T::nan());
    }
    Complex::new(times(z.re.cosh(), z.im.cos()), times(z.re.sinh(), z.im.sin()))
}

pub(super) fn sinh<T: Part>(z: Complex<T>) -> Complex<T> {
    if z.re.is_infinite() && !z.im.is_finite() {
        return Complex::new(z.re, T::nan());
    }
    Complex::new(times(z.re.sinh(), z.im.cos()), times(z.re.cosh(), z.im.sin()))
}

pub(super) fn tanh<T: Part>(z: Complex<T>) -> Complex<T> {
    let two = T::one() + T::one();
    // Where `tanh` of the real part is 1 to the last digit, its square would overflow.
    if z.re.abs() > T::epsilon().recip().ln() {
        let sine = if z.im.is_finite() { (two * z.im).sin() } else { T::zero() };
        let small = two * sine * (-two * z.re.abs()).exp();
        return Complex::new(z.re.signum(), small);
    }
    let (tan, sinh) = (z.im.tan(), z.re.sinh());
    let beta = T::one() + tan * tan;
    let below = T::one() + beta * sinh * sinh;
    let re = beta * (T::one() + sinh * sinh).sqrt() * sinh / below;
    let re = if z.re == T::zero() { z.re } else { re };
    let im = if z.im == T::zero() { z.im } else { tan / below };
    Complex::new(re, im)
}

pub(super) fn sin<T: Part>(z: Complex<T>) -> Complex<T> {
    turned_back(sinh(turned(z)))
}

pub(super) fn cos<T: Part>(z: Complex<T>) -> Complex<T> {
    cosh(turned(z))
}

pub(super) fn tan<T: Part>(z: Complex<T>) -> Complex<T> {
    turned_back(tanh(turned(z)))
}

/// Computed where both parts are positive, and mirrored: so both sides of each branch cut are
/// those of C.
pub(super) fn asinh<T: Part>(z: Complex<T>) -> Complex<T> {
    let (x, y) = (z.re.abs(), z.im.abs());
    let quarter = T::FRAC_PI_4();
    let (re, im) = match () {
        () if y.is_infinite() && x.is_infinite() => (x, quarter),
        () if y.is_infinite() => (y, if x.is_nan() { x } else { T::FRAC_PI_2() }),
        () if x.is_infinite() => (x, if y.is_nan() { y } else { T::zero() }),
        () if x.is_nan() => (x, if y == T::zero() { y } else { T::nan() }),
        () if y.is_nan() => (y, y),
        // The square of a large number is infinite.
        () if x.max(y) > T::epsilon().recip() => {
            let half = T::one() / (T::one() + T::one());
            ((x * half).hypot(y * half).ln() + T::LN_2() + T::LN_2(), y.atan2(x))
        }
        () => {
            let made = Complex::new(x, y).asinh();
            (made.re, made.im)
        }
    };
    Complex::new(re.abs().copysign(z.re), im.abs().copysign(z.im))
}

pub(super) fn asin<T: Part>(z: Complex<T>) -> Complex<T> {
    turned_back(asinh(turned(z)))
}

pub(super) fn acos<T: Part>(z: Complex<T>) -> Complex<T> {
    let asin = asin(z);
    Complex::new(T::FRAC_PI_2() - asin.re, -asin.im)
}

pub(super) fn acosh<T: Part>(z: Complex<T>) -> Complex<T> {
    let acos = acos(z);
    Complex::new(acos.im.abs(), acos.re.copysign(z.im))
}

pub(super) fn atanh<T: Part>(z: Complex<T>) -> Complex<T> {
    let (x, y) = (z.re.abs(), z.im);
    let right = || T::FRAC_PI_2().copysign(y);
    let (one, two) = (T::one(), T::one() + T::one());
    let (re, im) = match () {
        () if y.is_infinite() => (T::zero(), right()),
        () if x.is_infinite() => (T::zero(), if y.is_nan() { y } else { right() }),
        () if x.is_nan() || y.is_nan() => (if x == T::zero() { x } else { T::nan() }, T::nan()),
        // The square of a large number is infinite.
        () if x.max(y.abs()) > T::epsilon().recip() => {
            let length = x.hypot(y);
            (x / length / length, right())
        }
        () => {
            let square = (one - x) * (one - x) + y * y;
            let re = (two * two * x / square).ln_1p() / (two * two);
            (re, (two * y).atan2((one - x) * (one + x) - y * y) / two)
        }
    };
    Complex::new(re.copysign(z.re), im)
}

pub(super) fn atan<T: Part>(z: Complex<T>) -> Complex<T> {
    turned_back(atanh(turned(z)))
}

/// `1 / z`, scaled by the larger part, as a whole vector of Eigen's is.
pub(super) fn inverse<T: Part>(z: Complex<T>) -> Complex<T> {
    let largest = z.re.abs().max(z.im.abs());
    let (re, im) = (z.re / largest, z.im / largest);
    let square = re * re + im * im;
    Complex::new(re / square / largest, -im / square / largest)
}

/// `1 / sqrt(z)`, as `complex_rsqrt` of Eigen.
pub(super) fn rsqrt<T: Part>(z: Complex<T>) -> Complex<T> {
    let (zero, two) = (T::zero(), T::one() + T::one());
    let length = z.re.hypot(z.im);
    let root = ((z.re.abs() + length) / two).sqrt();
    let (major, minor) = (root / length, z.im.abs() / (two * root * length));
    let flipped = if z.im < zero { major } else { -major };
    match () {
        () if length == zero => Complex::new(T::infinity(), T::nan()),
        () if z.re.is_infinite() || z.im.is_infinite() => Complex::new(zero, zero),
        () if z.re == zero => Complex::new(major, flipped),
        () if z.re > zero => Complex::new(major, if z.im < zero { minor } else { -minor }),
        () => Complex::new(minor, flipped),
    }
}

/// `exp(z) - 1`, exact for small numbers.
pub(super) fn expm1<T: Part>(z: Complex<T>) -> Complex<T> {
    let two = T::one() + T::one();
    let less = z.re.exp_m1();
    let (growth, sine) = (less + T::one(), (z.im / two).sin());
    Complex::new(less - two * growth * sine * sine, growth * z.im.sin())
}

/// `log(1 + z)`, exact for small numbers.
pub(super) fn log1p<T: Part>(z: Complex<T>) -> Complex<T> {
    let one = Complex::new(T::one(), T::zero());
    let more = z + one;
    let log = more.ln();
    if more == one || more == log { z } else { z * (log * inverse(more - one)) }
}
