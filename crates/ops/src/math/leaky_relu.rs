//! `LeakyRelu`: negative elements times a small factor.

use half::{bf16, f16};

use super::map::{self, CHEAP};
use super::table::{BLOCK, Narrow};
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("LeakyRelu", RowRule::Elementwise, |attrs| {
    Ok(Box::new(LeakyRelu { alpha: attrs.float_or("alpha", 0.2)? }))
});

struct LeakyRelu {
    alpha: f32,
}

impl Op for LeakyRelu {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let alpha = self.alpha;
        let dtype = ctx.input(0).dtype();
        match dtype {
            DType::F32 => map::run(ctx, dtype, CHEAP, |x, y| leak(x, y, alpha, 0.0)),
            DType::F64 => map::run(ctx, dtype, CHEAP, |x, y| leak(x, y, f64::from(alpha), 0.0)),
            DType::F16 => map::run(ctx, dtype, CHEAP, |x, y| leak_half::<f16>(x, y, alpha)),
            DType::BF16 => map::run(ctx, dtype, CHEAP, |x, y| leak_half::<bf16>(x, y, alpha)),
            other => unsupported!("dtype {other} is not supported here"),
        }
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

fn leak<T: Copy + PartialOrd + std::ops::Mul<Output = T>>(x: &[T], y: &mut [T], by: T, zero: T) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = if *x > zero { *x } else { *x * by });
}

fn leak_half<T: Narrow>(x: &[T], y: &mut [T], alpha: f32) {
    let (mut wide, mut result) = ([0f32; BLOCK], [0f32; BLOCK]);
    for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
        let (wide, result) = (&mut wide[..x.len()], &mut result[..x.len()]);
        T::widen(x, wide);
        leak(wide, result, alpha, 0.0);
        T::round(result, y);
    }
}
