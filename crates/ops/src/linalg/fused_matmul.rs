//! `_FusedMatMul`: a matrix product and what comes after it. Graph passes make it.

use super::matmul::MatMul;
use crate::facts::Cost;
use crate::nn::Steps;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("_FusedMatMul", RowRule::MatMul, |attrs| {
    Ok(Box::new(FusedMatMul { product: MatMul::read(attrs)?, steps: Steps::read(attrs)? }))
})
.costs(Cost::Product);

struct FusedMatMul {
    product: MatMul,
    steps: Steps,
}

impl Op for FusedMatMul {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2)?;
        let outputs = self.product.infer_output(&inputs[0], &inputs[1])?;
        self.steps.check(inputs, &outputs[0], 1)?;
        Ok(outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = self.product.shape_of(ctx)?;
        let epilogue = self.steps.epilogue(ctx, &shape, 1)?;
        self.product.run_with(ctx, epilogue)
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        self.product.pack(input, weight)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        self.product.scratch_bytes(inputs, outputs)
    }
}
