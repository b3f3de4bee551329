//! Ops of two tensors that work element by element with broadcasting: a row each.

use kernels::approx;

use super::gamma;
use super::map::COSTLY;
use super::table::{Table, fill};
use super::zip::{Binary, Compare, Comparison, PLAIN, Refuses, Traits, Zip};
use crate::prelude::*;

/// An op that computes.
macro_rules! row {
    ($name:literal, $traits:expr, $($class:ident $args:tt => $body:expr),+) => {
        OpDef::pure($name, RowRule::Elementwise, |_| {
            const KERNELS: Table<Binary> = {
                let mut table = Table::NONE;
                $(fill!(table two $class $args $body);)+
                table
            };
            Ok(Box::new(Zip { kernels: &KERNELS, traits: $traits }))
        })
    };
}

/// An op that computes, and whose rows nobody has asked about: they count as mixed.
macro_rules! mixed {
    ($($row:tt)+) => {
        row!($($row)+).rows(RowRule::Mixed)
    };
}

/// An op that compares; `$different` is its answer for shapes that do not broadcast, if it may be
/// asked for one.
macro_rules! compare {
    ($name:literal, $different:expr, $strings:expr, $($class:ident $args:tt => $body:expr),+) => {
        OpDef::pure($name, RowRule::Elementwise, |attrs| {
            const KERNELS: Table<Comparison> = {
                let mut table = Table::NONE;
                $(fill!(table whether_two $class $args $body);)+
                table
            };
            let mismatch = mismatch(attrs, $different)?;
            Ok(Box::new(Compare { kernels: &KERNELS, mismatch, strings: $strings }))
        })
    };
}

/// The kernels of a sum, for ops that are one in disguise.
pub(super) const SUM: Table<Binary> = {
    let mut table = Table::NONE;
    fill!(table two float(x, y) x + y);
    fill!(table two integer(x, y) x.wrapping_add(y));
    fill!(table two complex(x, y) x + y);
    table
};

const SLOW: Traits = Traits { grain: COSTLY, ..PLAIN };
const DIVISION: Traits = Traits { refuses: Refuses::Zero, ..PLAIN };
const TRUNCATION: Traits = Traits { refuses: Refuses::ZeroInternally, ..PLAIN };

/// The traits of an op that may compute sizes.
const fn sized(traits: Traits, sizes: fn(&Dim, &Dim) -> Dim) -> Traits {
    Traits { sizes: Some(sizes), ..traits }
}

/// The rows.
#[rustfmt::skip]
pub(super) const OPS: &[OpDef] = &[
    OpDef::pure("Add", RowRule::Elementwise, |_| {
        Ok(Box::new(Zip { kernels: &SUM, traits: sized(PLAIN, Dim::plus) }))
    }),
    OpDef::pure("AddV2", RowRule::Elementwise, |_| {
        Ok(Box::new(Zip { kernels: &SUM, traits: sized(PLAIN, Dim::plus) }))
    }),
    row!("Sub", sized(PLAIN, Dim::minus), float(x, y) => x - y, integer(x, y) => x.wrapping_sub(y),
        complex(x, y) => x - y),
    row!("Mul", sized(PLAIN, Dim::times), float(x, y) => x * y, integer(x, y) => x.wrapping_mul(y),
        complex(x, y) => x * y),
    row!("MulNoNan", PLAIN, float(x, y) => if y == 0.0 { 0.0 } else { x * y },
        complex(x, y) => if y.norm_sqr() == 0.0 { y } else { x * y }),
    row!("Div", DIVISION, float(x, y) => x / y, integer(x, y) => x.wrapping_div(y),
        complex(x, y) => x / y),
    row!("RealDiv", PLAIN, float(x, y) => x / y, complex(x, y) => x / y),
    row!("DivNoNan", PLAIN, float(x, y) => if y == 0.0 { 0.0 } else { x / y },
        complex(x, y) => if y.norm_sqr() == 0.0 { y } else { x / y }),
    row!("TruncateDiv", TRUNCATION, float(x, y) => (x / y).trunc(),
        integer(x, y) => x.wrapping_div(y)),
    row!("FloorDiv", sized(DIVISION, Dim::divided_by), float(x, y) => (x / y).floor(),
        signed(x, y) => {
            let quotient = x.wrapping_div(y);
            let inexact = x.wrapping_rem(y) != 0;
            quotient.wrapping_sub((inexact && ((x < 0) != (y < 0))).into())
        },
        unsigned(x, y) => x / y),
    row!("Mod", DIVISION, float(x, y) => x % y, integer(x, y) => x.wrapping_rem(y)),
    row!("TruncateMod", TRUNCATION, float(x, y) => x % y, integer(x, y) => x.wrapping_rem(y)),
    row!("FloorMod", DIVISION,
        float(x, y) => {
            let rest = x % y;
            if rest != 0.0 && ((y < 0.0) != (rest < 0.0)) { rest + y } else { rest }
        },
        signed(x, y) => {
            let rest = x.wrapping_rem(y);
            if rest != 0 && ((y < 0) != (rest < 0)) { rest.wrapping_add(y) } else { rest }
        },
        unsigned(x, y) => x % y),
    row!("Maximum", sized(PLAIN, larger),
        float(x, y) => if x > y || x.is_nan() { x } else { y }, integer(x, y) => x.max(y)),
    row!("Minimum", sized(PLAIN, smaller),
        float(x, y) => if x < y || x.is_nan() { x } else { y }, integer(x, y) => x.min(y)),
    row!("SquaredDifference", PLAIN, float(x, y) => (x - y) * (x - y),
        integer(x, y) => x.wrapping_sub(y).wrapping_mul(x.wrapping_sub(y)),
        complex(x, y) => (x - y).conj() * (x - y)),
    row!("Atan2", SLOW, float(x, y) => x.atan2(y)),
    row!("Xdivy", PLAIN, float(x, y) => if x == 0.0 { 0.0 } else { x / y },
        complex(x, y) => if x.norm_sqr() == 0.0 { x } else { x / y }),
    row!("Xlogy", SLOW, f32(x, y) => if x == 0.0 { 0.0 } else { x * approx::log::<M>(y) },
        f64(x, y) => if x == 0.0 { 0.0 } else { x * y.ln() },
        complex(x, y) => if x.norm_sqr() == 0.0 { x } else { x * y.ln() }),
    row!("Xlog1py", SLOW, f32(x, y) => if x == 0.0 { 0.0 } else { x * approx::log1p::<M>(y) },
        f64(x, y) => if x == 0.0 { 0.0 } else { x * y.ln_1p() },
        complex(x, y) => if x.norm_sqr() == 0.0 { x } else { x * (y + 1.0).ln() }),
    mixed!("NextAfter", PLAIN, f32(x, y) => libm::nextafterf(x, y),
        f64(x, y) => libm::nextafter(x, y)),

    mixed!("Igamma", SLOW, f32(a, x) => gamma::igamma(f64::from(a), f64::from(x)) as f32,
        f64(a, x) => gamma::igamma(a, x)),
    mixed!("Igammac", SLOW, f32(a, x) => gamma::igammac(f64::from(a), f64::from(x)) as f32,
        f64(a, x) => gamma::igammac(a, x)),
    mixed!("Zeta", SLOW, f32(x, q) => gamma::zeta(f64::from(x), f64::from(q), gamma::as_f32) as f32,
        f64(x, q) => gamma::zeta(x, q, |x| x)),
    mixed!("Polygamma", SLOW,
        f32(n, x) => gamma::polygamma(f64::from(n), f64::from(x), gamma::as_f32) as f32,
        f64(n, x) => gamma::polygamma(n, x, |x| x)),

    row!("BitwiseAnd", PLAIN, integer(x, y) => x & y),
    row!("BitwiseOr", PLAIN, integer(x, y) => x | y),
    row!("BitwiseXor", PLAIN, integer(x, y) => x ^ y),
    row!("LeftShift", PLAIN,
        integer(x, y) => x.wrapping_shl(shift(y as i64, x.count_zeros() + x.count_ones()))),
    row!("RightShift", PLAIN,
        integer(x, y) => x.wrapping_shr(shift(y as i64, x.count_zeros() + x.count_ones()))),
    row!("LogicalAnd", PLAIN, u8(x, y) => x & y),
    row!("LogicalOr", PLAIN, u8(x, y) => x | y),

    compare!("Equal", Some(false), Some(|x, y| x == y), any(x, y) => x == y),
    compare!("NotEqual", Some(true), Some(|x, y| x != y), any(x, y) => x != y),
    compare!("Less", None, None, real(x, y) => x < y),
    compare!("LessEqual", None, None, real(x, y) => x <= y),
    compare!("Greater", None, None, real(x, y) => x > y),
    compare!("GreaterEqual", None, None, real(x, y) => x >= y),
];

/// The bits to shift by: none if negative, all but one if too many.
#[inline(always)]
fn shift(by: i64, bits: u32) -> u32 {
    by.clamp(0, i64::from(bits) - 1) as u32
}

/// The answer for shapes that do not broadcast, if the node asks for one.
fn mismatch(attrs: &Attrs<'_>, different: Option<bool>) -> Result<Option<bool>> {
    let refused = attrs.bool_or("incompatible_shape_error", true)?;
    Ok(different.filter(|_| !refused))
}

fn larger(a: &Dim, b: &Dim) -> Dim {
    pick(a, b, i64::max)
}

fn smaller(a: &Dim, b: &Dim) -> Dim {
    pick(a, b, i64::min)
}

fn pick(a: &Dim, b: &Dim, of: fn(i64, i64) -> i64) -> Dim {
    match (a.known(), b.known()) {
        (Some(a), Some(b)) => Dim::Known(of(a, b)),
        _ if a.same(b) => a.clone(),
        _ => Dim::Unknown,
    }
}
