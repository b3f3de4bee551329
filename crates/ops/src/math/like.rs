//! `ZerosLike` and `OnesLike`.

use half::{bf16, f16};
use num_traits::One;

use super::table::for_column;
use crate::error::unimplemented;
use crate::prelude::*;

pub(super) const ZEROS_LIKE: OpDef = OpDef::pure("ZerosLike", |_| Ok(Box::new(Zeros)));
pub(super) const ONES_LIKE: OpDef = OpDef::pure("OnesLike", |_| Ok(Box::new(Ones)));

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
            return unimplemented!("dtype {} is not supported here", x.dtype());
        }
        ctx.output(0, x.dtype(), x.shape())?.bytes().fill(0);
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
            DType::F16 => out.as_mut_slice::<f16>().fill(f16::ONE),
            DType::BF16 => out.as_mut_slice::<bf16>().fill(bf16::ONE),
            dtype => for_column!(dtype, T => out.as_mut_slice::<T>().fill(T::one())),
        }
        Ok(())
    }
}
