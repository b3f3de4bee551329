//! `Cast`: the same numbers in another dtype, as `cast_op.h` converts them.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use tensor::Value;

use super::map::CHEAP;
use super::table::{BLOCK, Narrow, c64, c128, for_column};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Cast", RowRule::Elementwise, |attrs| {
    let (from, to) = (attrs.dtype("SrcT")?, attrs.dtype("DstT")?);
    let truncate = attrs.bool_or("Truncate", false)?;
    Ok(Box::new(Cast { from, to, kernel: kernel(from, to)?, truncate }))
});

struct Cast {
    from: DType,
    to: DType,
    kernel: Kernel,
    /// `true` if floats lose their low bits instead of being rounded.
    truncate: bool,
}

/// From bytes of elements to bytes of as many elements.
type Kernel = fn(&[u8], &mut [u8]);

impl Op for Cast {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        let mut spec = x.with_dtype(self.to);
        let widens = matches!((self.from, self.to), (DType::I32, DType::I32 | DType::I64));
        if widens && let Value::Sizes(sizes) = &x.value {
            spec.value = Value::Sizes(sizes.clone());
        }
        if (self.from, self.to) == (DType::I64, DType::I32)
            && let Some(sizes) = x.sizes()
            // A size that does not fit would wrap around; a shape's own sizes never come so far.
            && sizes.iter().all(|dim| dim.known().is_none_or(|n| i32::try_from(n).is_ok()))
        {
            spec.value = Value::Sizes(sizes.into());
        }
        Ok(vec![spec])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        if x.dtype() != self.from {
            return invalid!("expected an input of dtype {} but got {}", self.from, x.dtype());
        }
        if self.from == self.to {
            return ctx.forward(0, x, x.shape().clone());
        }
        let (pool, bytes) = (ctx.env().pool, x.bytes());
        let mut out = ctx.output(0, self.to, x.shape())?;
        let (from, to) = (self.from.size(), self.to.size());
        let lost = if self.truncate { lost_bits(self.from, self.to) } else { 0 };
        in_pieces(pool, out.bytes(), CHEAP * to, |at, piece| {
            let start = at / to * from;
            let bytes = &bytes[start..start + piece.len() / to * from];
            if lost == 0 {
                return (self.kernel)(bytes, piece);
            }
            // As wide as the widest float, so that each has its place.
            let mut block = [0u64; BLOCK];
            let block: &mut [u8] = bytemuck::cast_slice_mut(&mut block);
            for (x, y) in bytes.chunks(BLOCK * from).zip(piece.chunks_mut(BLOCK * to)) {
                let block = &mut block[..x.len()];
                block.copy_from_slice(x);
                block.chunks_exact_mut(from).for_each(|number| clear_low_bits(number, lost));
                (self.kernel)(block, y);
            }
        });
        Ok(())
    }
}

/// A type that others are made of, as C++ converts them on x86.
trait Make<D> {
    fn make(self) -> D;
}

macro_rules! make {
    ($($from:ident)* => $to:ident: |$x:ident| $body:expr) => {$(
        impl Make<$to> for $from {
            #[inline(always)]
            fn make(self) -> $to {
                let $x = self;
                $body
            }
        }
    )*};
}

macro_rules! make_integers {
    ($($to:ident)*) => {$(
        make!(i8 i16 i32 i64 u8 u16 u32 u64 => $to: |x| x as $to);
        make!(c64 c128 => $to: |x| x.re.make());
    )*};
}

make_integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

// A float goes through a wider integer, whose low bits are kept: so do compilers for x86.
make!(f32 f64 => i8: |x| narrow(x.into()) as i8);
make!(f32 f64 => i16: |x| narrow(x.into()) as i16);
make!(f32 f64 => i32: |x| narrow(x.into()));
make!(f32 f64 => u8: |x| narrow(x.into()) as u8);
make!(f32 f64 => u16: |x| narrow(x.into()) as u16);
make!(f32 f64 => u32: |x| wide(x.into()) as u32);
make!(f32 f64 => i64: |x| wide(x.into()));
make!(f32 f64 => u64: |x| {
    let x = f64::from(x);
    if x < TWO_TO_63 { wide(x) as u64 } else { (wide(x - TWO_TO_63) as u64) ^ (1 << 63) }
});
make!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 => f32: |x| x as f32);
make!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 => f64: |x| x as f64);
make!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 => c64: |x| Complex::new(x as f32, 0.0));
make!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 => c128: |x| Complex::new(x as f64, 0.0));
make!(c64 c128 => f32: |x| x.re.make());
make!(c64 c128 => f64: |x| x.re.make());
make!(c64 c128 => c64: |x| Complex::new(x.re.make(), x.im.make()));
make!(c64 c128 => c128: |x| Complex::new(x.re.make(), x.im.make()));

const TWO_TO_31: f64 = 2_147_483_648.0;
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// The integer part; the lowest number if it does not fit, as the instruction gives it.
#[inline(always)]
fn narrow(x: f64) -> i32 {
    if x > -TWO_TO_31 - 1.0 && x < TWO_TO_31 { x as i32 } else { i32::MIN }
}

/// The same in 64 bits.
#[inline(always)]
fn wide(x: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&x) { x as i64 } else { i64::MIN }
}

/// The kernel for a pair of dtypes.
fn kernel(from: DType, to: DType) -> Result<Kernel> {
    match from {
        DType::F16 => widened::<f16>(to),
        DType::BF16 => widened::<bf16>(to),
        _ => for_column!(plain(from), S => from_column::<S>(to)),
    }
}

/// Quantized numbers are cast as the integers that they are made of.
fn plain(dtype: DType) -> DType {
    match dtype {
        DType::QI8 => DType::I8,
        DType::QU8 => DType::U8,
        DType::QI16 => DType::I16,
        DType::QU16 => DType::U16,
        DType::QI32 => DType::I32,
        other => other,
    }
}

/// All that a column type is made into.
trait CastSource:
    Pod
    + Make<f32>
    + Make<f64>
    + Make<i8>
    + Make<i16>
    + Make<i32>
    + Make<i64>
    + Make<u8>
    + Make<u16>
    + Make<u32>
    + Make<u64>
    + Make<c64>
    + Make<c128>
{
    /// Returns whether the number is not zero; of a complex number only the real part counts.
    fn is_true(self) -> bool;
}

macro_rules! sources {
    ($($type:ident)* : |$x:ident| $is_true:expr) => {$(
        impl CastSource for $type {
            #[inline(always)]
            fn is_true(self) -> bool {
                let $x = self;
                $is_true
            }
        }
    )*};
}

sources!(f32 f64: |x| x != 0.0);
sources!(i8 i16 i32 i64 u8 u16 u32 u64: |x| x != 0);
sources!(c64 c128: |x| x.re != 0.0);

fn from_column<S: CastSource>(to: DType) -> Result<Kernel> {
    Ok(match to {
        DType::F16 => rounded::<S, f16>,
        DType::BF16 => rounded::<S, bf16>,
        DType::Bool => |x, y| {
            let x: &[S] = bytemuck::cast_slice(x);
            x.iter().zip(y).for_each(|(x, y)| *y = u8::from(x.is_true()));
        },
        _ => for_column!(plain(to), D => converted::<S, D>),
    })
}

fn converted<S: Make<D> + Pod, D: Pod>(x: &[u8], y: &mut [u8]) {
    let (x, y): (&[S], &mut [D]) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y));
    x.iter().zip(y).for_each(|(x, y)| *y = x.make());
}

fn rounded<S: Make<f32> + Pod, D: Narrow>(x: &[u8], y: &mut [u8]) {
    let (x, y): (&[S], &mut [D]) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y));
    let mut wide = [0f32; BLOCK];
    for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
        x.iter().zip(&mut wide).for_each(|(x, wide)| *wide = x.make());
        D::round(&wide[..x.len()], y);
    }
}

/// From 16-bit floats, through `f32`.
fn widened<S: Narrow>(to: DType) -> Result<Kernel> {
    Ok(match to {
        DType::F32 => |x, y| S::widen(bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y)),
        DType::F64 => through::<S, f64>,
        DType::F16 => |x, y| through_narrow::<S, f16>(x, y),
        DType::BF16 => |x, y| through_narrow::<S, bf16>(x, y),
        DType::Bool => |x, y| {
            blocks::<S, u8>(x, y, |x, y| {
                x.iter().zip(y).for_each(|(x, y)| *y = u8::from(*x != 0.0));
            });
        },
        _ => for_column!(plain(to), D => through::<S, D>),
    })
}

fn through<S: Narrow, D: Pod>(x: &[u8], y: &mut [u8])
where
    f32: Make<D>,
{
    blocks::<S, D>(x, y, |x, y| x.iter().zip(y).for_each(|(x, y)| *y = x.make()));
}

fn through_narrow<S: Narrow, D: Narrow>(x: &[u8], y: &mut [u8]) {
    blocks::<S, D>(x, y, |x, y| D::round(x, y));
}

fn blocks<S: Narrow, D: Pod>(x: &[u8], y: &mut [u8], work: impl Fn(&[f32], &mut [D])) {
    let (x, y): (&[S], &mut [D]) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y));
    let mut wide = [0f32; BLOCK];
    for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
        S::widen(x, &mut wide[..x.len()]);
        work(&wide[..x.len()], y);
    }
}

/// Returns how many low bits of a float the narrower `to` has no room for.
fn lost_bits(from: DType, to: DType) -> u32 {
    let mantissa = |dtype| match dtype {
        DType::F64 => 52,
        DType::F32 => 23,
        DType::F16 => 10,
        DType::BF16 => 7,
        _ => 0,
    };
    match (mantissa(from), mantissa(to)) {
        (_, 0) => 0,
        (has, keeps) => u32::saturating_sub(has, keeps),
    }
}

fn clear_low_bits(number: &mut [u8], bits: u32) {
    let whole = (bits / 8) as usize;
    number[..whole].fill(0);
    number[whole] &= u8::MAX << (bits % 8);
}
