//! `PartitionedCall`, `StatefulPartitionedCall`, `BatchFunction`: a call of a function.

use super::ready::{Pick, ReadyCall};
use crate::env::{Env, Functions};
use crate::facts::FunctionCall;
use crate::op::ReadyOp;
use crate::prelude::*;

// Never folded: a loop in the function may take long, or have no end.
pub(super) const CALL: OpDef =
    OpDef::of_kind("PartitionedCall", Kind::Reads, RowRule::Mixed, |attrs| {
        ControlCall::build(attrs, "Tout")
    })
    .calls(FunctionCall::Plain);
pub(super) const STATEFUL_CALL: OpDef =
    OpDef::of_kind("StatefulPartitionedCall", Kind::Writes, RowRule::Mixed, |attrs| {
        ControlCall::build(attrs, "Tout")
    })
    .calls(FunctionCall::Plain);
pub(super) const BATCH_FUNCTION: OpDef =
    OpDef::of_kind("BatchFunction", Kind::Writes, RowRule::Mixed, |attrs| {
        ControlCall::build(attrs, "Tout")
    })
    .calls(FunctionCall::Plain);

/// Calls one function with all inputs. A `BatchFunction` is such a call too: we batch requests, not
/// calls inside of one.
struct ControlCall {
    function: String,
    outputs: Vec<DType>,
}

impl ControlCall {
    fn build(attrs: &Attrs<'_>, outputs: &str) -> Result<Box<dyn Op>> {
        let function = attrs.function("f")?.to_owned();
        Ok(Box::new(Self { function, outputs: attrs.dtypes(outputs)? }))
    }
}

impl Op for ControlCall {
    fn infer(&self, _: &[Spec]) -> Result<Vec<Spec>> {
        Ok(self.outputs.iter().map(|dtype| Spec::unknown(*dtype)).collect())
    }

    fn infer_with(&self, inputs: &[Spec], functions: &dyn Functions) -> Result<Vec<Spec>> {
        functions.infer(&self.function, inputs)
    }

    fn ready(&self, inputs: &[Spec], outputs: &[Spec], env: &Env<'_>) -> Option<ReadyOp> {
        let function = env.functions.ready(&self.function, inputs, env)?;
        ReadyCall::build(Pick::Only, vec![function], inputs, outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = owned(ctx.inputs())?;
        let outputs = ctx.env().functions.call(&self.function, &inputs, ctx.env())?;
        set_outputs(ctx, outputs)
    }
}

/// Inputs as tensors, to hand to a function.
pub(super) fn owned(inputs: &[View<'_>]) -> Result<Vec<Tensor>> {
    inputs.iter().map(|input| Ok(input.to_tensor()?)).collect()
}

/// Makes the results of a function the op's outputs.
pub(super) fn set_outputs(ctx: &mut Ctx<'_>, outputs: Vec<Tensor>) -> Result<()> {
    if outputs.len() != ctx.n_outputs() {
        let (got, expected) = (outputs.len(), ctx.n_outputs());
        return invalid!("a function gave {got} outputs where {expected} were expected");
    }
    outputs.into_iter().enumerate().try_for_each(|(i, output)| ctx.set_output(i, output))
}
