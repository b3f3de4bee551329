//! `Identity` and what is the same when nothing is trained or debugged.

use crate::facts::PassThrough;
use crate::prelude::*;

pub(super) const IDENTITY: OpDef =
    OpDef::pure("Identity", RowRule::Elementwise, |_| Ok(Box::new(Identity)))
        .passes(PassThrough::Anything);
pub(super) const STOP_GRADIENT: OpDef =
    OpDef::pure("StopGradient", RowRule::Elementwise, |_| Ok(Box::new(Identity)))
        .passes(PassThrough::Tensor);
pub(super) const PREVENT_GRADIENT: OpDef =
    OpDef::pure("PreventGradient", RowRule::Elementwise, |_| Ok(Box::new(Identity)))
        .passes(PassThrough::Tensor);
pub(super) const SNAPSHOT: OpDef =
    OpDef::pure("Snapshot", RowRule::Elementwise, |_| Ok(Box::new(Identity)))
        .passes(PassThrough::Tensor);
pub(super) const GUARANTEE_CONST: OpDef =
    OpDef::pure("GuaranteeConst", RowRule::Mixed, |_| Ok(Box::new(Identity)));
pub(super) const IDENTITY_N: OpDef =
    OpDef::pure("IdentityN", RowRule::Elementwise, |_| Ok(Box::new(IdentityN)))
        .passes(PassThrough::Each);
pub(super) const NO_OP: OpDef = OpDef::pure("NoOp", RowRule::Mixed, |_| Ok(Box::new(NoOp)));

struct Identity;

impl Op for Identity {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        Ok(vec![input.clone()])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        ctx.forward(0, input, input.shape().clone())
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }
}

struct IdentityN;

impl Op for IdentityN {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        for i in 0..ctx.n_inputs() {
            let input = ctx.input(i);
            ctx.forward(i, input, input.shape().clone())?;
        }
        Ok(())
    }
}

struct NoOp;

impl Op for NoOp {
    fn infer(&self, _: &[Spec]) -> Result<Vec<Spec>> {
        Ok(Vec::new())
    }

    fn run(&self, _: &mut Ctx<'_>) -> Result<()> {
        Ok(())
    }
}
