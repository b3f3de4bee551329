//! Complex numbers and their parts: `Complex`, `Real`, `Imag`, `ComplexAbs`, `Angle`.

use num_complex::Complex;

use super::map::{self, CHEAP};
use super::zip;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const COMPLEX: OpDef =
    OpDef::pure("Complex", RowRule::Elementwise, |_| Ok(Box::new(Join)));
pub(super) const REAL: OpDef =
    OpDef::pure("Real", RowRule::Elementwise, |_| Ok(Box::new(ComplexPart::Real)));
pub(super) const IMAG: OpDef =
    OpDef::pure("Imag", RowRule::Elementwise, |_| Ok(Box::new(ComplexPart::Imaginary)));
pub(super) const COMPLEX_ABS: OpDef =
    OpDef::pure("ComplexAbs", RowRule::Elementwise, |_| Ok(Box::new(ComplexPart::Length)));
pub(super) const ANGLE: OpDef =
    OpDef::pure("Angle", RowRule::Elementwise, |_| Ok(Box::new(ComplexPart::Angle)));

/// Two real tensors as one complex.
struct Join;

/// A real number of each complex one.
#[derive(Clone, Copy)]
enum ComplexPart {
    Real,
    Imaginary,
    Length,
    Angle,
}

impl Op for Join {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [re, im] = arity(inputs)?;
        let dtype = if re.dtype == DType::F64 { DType::Complex128 } else { DType::Complex64 };
        Ok(vec![Spec { dims: broadcast(re, im)?, ..Spec::unknown(dtype) }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        match ctx.input(0).dtype() {
            DType::F32 => zip::run(ctx, DType::Complex64, CHEAP, join::<f32>),
            DType::F64 => zip::run(ctx, DType::Complex128, CHEAP, join::<f64>),
            other => unsupported!("dtype {other} is not supported here"),
        }
    }
}

fn join<T: Copy>(re: &[T], im: &[T], out: &mut [Complex<T>]) {
    out.iter_mut().zip(re.iter().zip(im)).for_each(|(z, (re, im))| *z = Complex::new(*re, *im));
}

impl Op for ComplexPart {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [z] = arity(inputs)?;
        let dtype = if z.dtype == DType::Complex128 { DType::F64 } else { DType::F32 };
        Ok(vec![z.with_dtype(dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        match ctx.input(0).dtype() {
            DType::Complex64 => map::run(ctx, DType::F32, CHEAP, self.kernel::<f32>()),
            DType::Complex128 => map::run(ctx, DType::F64, CHEAP, self.kernel::<f64>()),
            other => unsupported!("dtype {other} is not supported here"),
        }
    }
}

impl ComplexPart {
    fn kernel<T: num_traits::Float>(self) -> fn(&[Complex<T>], &mut [T]) {
        match self {
            Self::Real => |z, x| x.iter_mut().zip(z).for_each(|(x, z)| *x = z.re),
            Self::Imaginary => |z, x| x.iter_mut().zip(z).for_each(|(x, z)| *x = z.im),
            Self::Length => |z, x| x.iter_mut().zip(z).for_each(|(x, z)| *x = z.norm()),
            Self::Angle => |z, x| x.iter_mut().zip(z).for_each(|(x, z)| *x = z.arg()),
        }
    }
}
