//! `Pow`: one tensor to the power of another.

use super::map::{self, CHEAP, COSTLY};
use super::table::{Table, fill, one};
use super::zip::{Binary, PLAIN, Refuses, Traits, Zip};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Pow", RowRule::Elementwise, |_| {
    const KERNELS: Table<Binary> = {
        let mut table = Table::NONE;
        fill!(table two float(x, y) x.powf(y));
        fill!(table two integer(x, y) x.wrapping_pow(y as u32));
        fill!(table two complex(x, y) x.powc(y));
        table
    };
    let traits = Traits { grain: COSTLY, refuses: Refuses::Negative, ..PLAIN };
    Ok(Box::new(Pow(Zip { kernels: &KERNELS, traits })))
});

struct Pow(Zip);

impl Op for Pow {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        self.0.infer(inputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let y = ctx.input(1);
        let scalar = y.n_elements() == 1 && y.shape().rank() <= base_rank(ctx);
        if scalar && y.dtype() == DType::F32 {
            // The powers of activations: a product is many times faster, and as precise.
            let by = y.as_slice::<f32>()[0];
            if by == 2.0 {
                return map::run(ctx, DType::F32, CHEAP, one!(f32 (x) x * x));
            }
            if by == 3.0 {
                return map::run(ctx, DType::F32, CHEAP, one!(f32 (x) x * x * x));
            }
        }
        self.0.run(ctx)
    }

    fn in_place(&self) -> Option<usize> {
        self.0.in_place()
    }
}

/// The number of dimensions of the base, which may be in the output already.
fn base_rank(ctx: &mut Ctx<'_>) -> usize {
    match ctx.in_place() {
        Some(out) => out.shape().rank(),
        None => ctx.input(0).shape().rank(),
    }
}
