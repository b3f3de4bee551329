//! `Einsum`: products and sums over named dimensions.
//!
//! Follows `einsum_op_impl.h`.

mod contract;
mod equation;
mod layout;
mod ready;

use std::sync::Arc;

use equation::Equation;
use ready::ReadyEinsum;

use crate::env::Env;
use crate::facts::Cost;
use crate::op::{Packed, ReadyOp};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Einsum", RowRule::Einsum, |attrs| {
    Ok(Box::new(Einsum { equation: Equation::parse(attrs.str("equation")?)? }))
})
.costs(Cost::Contraction);

struct Einsum {
    equation: Equation,
}

impl Op for Einsum {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.equation.n_inputs() {
            let n = self.equation.n_inputs();
            return invalid!("the equation has {n} inputs but got {}", inputs.len());
        }
        let dtype = inputs[0].dtype;
        let dims: Option<Vec<&[Dim]>> = inputs.iter().map(Spec::dims).collect();
        match dims {
            Some(dims) => Ok(vec![Spec::new(dtype, self.equation.infer(&dims)?)]),
            None => Ok(vec![Spec::unknown(dtype)]),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let spec = |view: &View<'_>| Spec::concrete(view.dtype(), view.shape());
        let inputs: Vec<Spec> = ctx.inputs().iter().map(spec).collect();
        ReadyEinsum::new(&self.equation, &inputs)?.run(ctx)
    }

    fn ready(&self, inputs: &[Spec], outputs: &[Spec], _: &Env<'_>) -> Option<ReadyOp> {
        let op = ReadyEinsum::new(&self.equation, inputs).ok()?;
        outputs.first()?.shape().filter(|shape| shape == op.shape())?;
        let (open_bytes, is_static, hands_on) = (0, true, Vec::new());
        Some(ReadyOp { op: Arc::new(op), open_bytes, is_static, hands_on })
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let fits = weight.dtype() == DType::F32 && weight.n_elements() > 0;
        if input != 1 || !fits || self.equation.has_ellipsis() {
            return Ok(None);
        }
        contract::pack(&self.equation, weight)
    }
}
