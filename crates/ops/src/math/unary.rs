//! Ops of one tensor that work element by element: a row each.

use kernels::approx;
use num_complex::Complex;

use super::map::{Ask, CHEAP, COSTLY, Map, Test, Unary};
use super::table::{Table, fill};
use super::{bessel, plane, special};
use crate::prelude::*;

/// An op that maps each element.
macro_rules! row {
    ($name:literal, $grain:ident, $($class:ident $args:tt => $body:expr),+) => {
        OpDef::pure($name, RowRule::Elementwise, |_| {
            const KERNELS: Table<Unary> = {
                let mut table = Table::NONE;
                $(fill!(table one $class $args $body);)+
                table
            };
            Ok(Box::new(Map { kernels: &KERNELS, grain: $grain }))
        })
    };
}

/// An op that maps each element, and whose rows nobody has asked about: they count as mixed.
macro_rules! mixed {
    ($($row:tt)+) => {
        row!($($row)+).rows(RowRule::Mixed)
    };
}

/// An op that asks something of each element.
macro_rules! ask {
    ($name:literal, $($class:ident $args:tt => $body:expr),+) => {
        OpDef::pure($name, RowRule::Elementwise, |_| {
            const KERNELS: Table<Test> = {
                let mut table = Table::NONE;
                $(fill!(table whether_one $class $args $body);)+
                table
            };
            Ok(Box::new(Ask(&KERNELS)))
        })
    };
}

/// The rows.
#[rustfmt::skip]
pub(super) const OPS: &[OpDef] = &[
    row!("Abs", CHEAP, float(x) => x.abs(), signed(x) => x.wrapping_abs(), unsigned(x) => x),
    row!("Neg", CHEAP, float(x) => -x, integer(x) => x.wrapping_neg(), complex(x) => -x),
    row!("Sign", CHEAP, float(x) => sign(x), signed(x) => x.signum(), complex(x) => direction(x)),
    row!("Square", CHEAP, float(x) => x * x, integer(x) => x.wrapping_mul(x), complex(x) => x * x),
    row!("Sqrt", CHEAP, float(x) => x.sqrt(), complex(x) => x.sqrt()),
    row!("Rsqrt", CHEAP, float(x) => 1.0 / x.sqrt(), complex(x) => plane::rsqrt(x)),
    row!("Reciprocal", CHEAP, float(x) => 1.0 / x, complex(x) => plane::inverse(x)),
    row!("Inv", CHEAP, float(x) => 1.0 / x, complex(x) => plane::inverse(x)),
    row!("Floor", CHEAP, float(x) => x.floor()),
    row!("Ceil", CHEAP, float(x) => x.ceil()),
    row!("Round", CHEAP, float(x) => x.round_ties_even()),
    row!("Rint", CHEAP, float(x) => x.round_ties_even()),
    row!("Conj", CHEAP, complex(x) => x.conj()),
    row!("Invert", CHEAP, integer(x) => !x),
    row!("LogicalNot", CHEAP, u8(x) => x ^ 1),

    row!("Exp", COSTLY, f32(x) => approx::exp::<M>(x), f64(x) => x.exp(), complex(x) => {
        // Nothing that is imaginary does not become so by being large.
        if x.im == 0.0 { num_complex::Complex::new(x.re.exp(), x.im) } else { x.exp() }
    }),
    row!("Expm1", COSTLY, f32(x) => approx::expm1::<M>(x), f64(x) => x.exp_m1(),
        complex(x) => plane::expm1(x)),
    row!("Log", COSTLY, f32(x) => approx::log::<M>(x), f64(x) => x.ln(), complex(x) => x.ln()),
    row!("Log1p", COSTLY, f32(x) => approx::log1p::<M>(x), f64(x) => x.ln_1p(),
        complex(x) => plane::log1p(x)),
    row!("Sin", COSTLY, float(x) => x.sin(), complex(x) => plane::sin(x)),
    row!("Cos", COSTLY, float(x) => x.cos(), complex(x) => plane::cos(x)),
    row!("Tan", COSTLY, float(x) => x.tan(), complex(x) => plane::tan(x)),
    row!("Asin", COSTLY, float(x) => x.asin(), complex(x) => plane::asin(x)),
    row!("Acos", COSTLY, float(x) => x.acos(), complex(x) => plane::acos(x)),
    row!("Atan", COSTLY, float(x) => x.atan(), complex(x) => plane::atan(x)),
    row!("Sinh", COSTLY, float(x) => x.sinh(), complex(x) => plane::sinh(x)),
    row!("Cosh", COSTLY, float(x) => x.cosh(), complex(x) => plane::cosh(x)),
    row!("Tanh", COSTLY, f32(x) => approx::tanh::<M>(x), f64(x) => x.tanh(),
        complex(x) => plane::tanh(x)),
    row!("Asinh", COSTLY, float(x) => x.asinh(), complex(x) => plane::asinh(x)),
    row!("Acosh", COSTLY, float(x) => x.acosh(), complex(x) => plane::acosh(x)),
    row!("Atanh", COSTLY, float(x) => x.atanh(), complex(x) => plane::atanh(x)),
    row!("Erf", COSTLY, f32(x) => approx::erf::<M>(x), f64(x) => libm::erf(x)),
    row!("Erfc", COSTLY, f32(x) => approx::erfc::<M>(x), f64(x) => libm::erfc(x)),
    row!("Erfinv", COSTLY, f32(x) => special::erfinv(f64::from(x)) as f32,
        f64(x) => special::erfinv(x)),
    row!("Ndtri", COSTLY, f32(x) => special::ndtri(f64::from(x)) as f32,
        f64(x) => special::ndtri(x)),
    row!("Lgamma", COSTLY, f32(x) => special::lgamma(f64::from(x)) as f32,
        f64(x) => special::lgamma(x)),
    row!("Digamma", COSTLY, f32(x) => special::digamma(f64::from(x)) as f32,
        f64(x) => special::digamma(x)),

    row!("Sigmoid", COSTLY, f32(x) => approx::sigmoid::<M>(x), f64(x) => 1.0 / (1.0 + (-x).exp()),
        complex(x) => ((-x).exp() + 1.0).inv()),
    row!("Softplus", COSTLY, f32(x) => approx::softplus::<M>(x), f64(x) => softplus(x)),
    row!("Softsign", CHEAP, float(x) => x / (1.0 + x.abs())),
    mixed!("BesselI0", COSTLY, f32(x) => bessel::i0(f64::from(x)) as f32,
        f64(x) => bessel::i0(x)),
    mixed!("BesselI0e", COSTLY, f32(x) => bessel::i0e(f64::from(x)) as f32,
        f64(x) => bessel::i0e(x)),
    mixed!("BesselI1", COSTLY, f32(x) => bessel::i1(f64::from(x)) as f32,
        f64(x) => bessel::i1(x)),
    mixed!("BesselI1e", COSTLY, f32(x) => bessel::i1e(f64::from(x)) as f32,
        f64(x) => bessel::i1e(x)),
    mixed!("BesselK0", COSTLY, f32(x) => bessel::k0(f64::from(x)) as f32,
        f64(x) => bessel::k0(x)),
    mixed!("BesselK0e", COSTLY, f32(x) => bessel::k0e(f64::from(x)) as f32,
        f64(x) => bessel::k0e(x)),
    mixed!("BesselK1", COSTLY, f32(x) => bessel::k1(f64::from(x)) as f32,
        f64(x) => bessel::k1(x)),
    mixed!("BesselK1e", COSTLY, f32(x) => bessel::k1e(f64::from(x)) as f32,
        f64(x) => bessel::k1e(x)),
    mixed!("BesselJ0", COSTLY, f32(x) => bessel::j0(f64::from(x)) as f32,
        f64(x) => bessel::j0(x)),
    mixed!("BesselJ1", COSTLY, f32(x) => bessel::j1(f64::from(x)) as f32,
        f64(x) => bessel::j1(x)),
    mixed!("BesselY0", COSTLY, f32(x) => bessel::y0(f64::from(x)) as f32,
        f64(x) => bessel::y0(x)),
    mixed!("BesselY1", COSTLY, f32(x) => bessel::y1_narrow(x),
        f64(x) => bessel::y1(x)),
    row!("Relu", CHEAP, float(x) => if x < 0.0 { 0.0 } else { x },
        signed(x) => x.max(0), unsigned(x) => x),
    row!("Relu6", CHEAP, float(x) => between(x, 0.0, 6.0), integer(x) => between(x, 0, 6)),
    row!("Elu", COSTLY, f32(x) => if x < 0.0 { approx::expm1::<M>(x) } else { x },
        f64(x) => if x < 0.0 { x.exp_m1() } else { x }),
    row!("Selu", COSTLY,
        f32(x) => SELU as f32 * if x < 0.0 { SELU_ALPHA as f32 * approx::expm1::<M>(x) } else { x },
        f64(x) => SELU * if x < 0.0 { SELU_ALPHA * x.exp_m1() } else { x }),

    ask!("IsNan", float(x) => x.is_nan()),
    ask!("IsInf", float(x) => x.is_infinite()),
    ask!("IsFinite", float(x) => x.is_finite()),
];

/// The constants of `relu_op_functor.h`.
const SELU: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.758_099_340_847_376_9 / SELU;

/// `x` where it is in between, the bound that it exceeds otherwise; NaN stays NaN.
#[inline(always)]
fn between<T: PartialOrd>(x: T, low: T, high: T) -> T {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// -1, 0 or 1; NaN stays NaN.
#[inline(always)]
fn sign<T: num_traits::Float>(x: T) -> T {
    let (zero, one) = (T::zero(), T::one());
    let result = if x < zero { -one } else { x };
    if x > zero { one } else { result }
}

/// The complex number of length 1 in the same direction; 0 for 0.
#[inline(always)]
fn direction<T: num_traits::Float>(x: Complex<T>) -> Complex<T> {
    let length = x.norm();
    if length == T::zero() { x } else { x / length }
}

/// As `softplus_op.h` splits it.
fn softplus(x: f64) -> f64 {
    let threshold = f64::EPSILON.ln() + 2.0;
    if x > -threshold {
        x
    } else if x < threshold {
        x.exp()
    } else {
        x.exp().ln_1p()
    }
}
