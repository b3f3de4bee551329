//! `ZerosLike` and `OnesLike`.

use half::{bf16, f16};
use num_traits::One;

use super::table::for_column;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const ZEROS_LIKE: OpDef =
    OpDef::pure("ZerosLike", RowRule::Elementwise, |_| Ok(Box::new(Zeros)));
pub(super) const ONES_LIKE: OpDef =
    OpDef::pure("OnesLike", RowRule::Elementwise, |_| Ok(Box::new(Ones)));

struct Zeros;
struct Ones;

impl Op for Zeros {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        if x.dtype() == DType::String {
            return ctx.set_output(0, Tensor::zeros(x.dtype(), x.shape().clone())?);
        }
        if !x.dtype().is_plain() {
            return unsupported!("dtype {} is not supported here", x.dtype());
        }
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        for bytes in out.bytes().chunks_mut(FILLED) {
            pace(FILLED / 8)?;
            bytes.fill(0);
        }
        Ok(())
    }
}

impl Op for Ones {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, mut out) = ctx.unary()?;
        match x.dtype() {
            DType::F16 => fill(out.as_mut_slice::<f16>(), f16::ONE),
            DType::BF16 => fill(out.as_mut_slice::<bf16>(), bf16::ONE),
            dtype => for_column!(dtype, T => fill(out.as_mut_slice::<T>(), T::one())),
        }
    }
}

/// The bytes that are filled at once.
const FILLED: usize = 1 << 16;

fn fill<T: Copy>(out: &mut [T], one: T) -> Result<()> {
    for out in out.chunks_mut(AT_ONCE) {
        pace(out.len())?;
        out.fill(one);
    }
    Ok(())
}
