//! `Identity` and what is the same when nothing is trained.

use crate::prelude::*;

pub(super) const IDENTITY: OpDef = OpDef::pure("Identity", |_| Ok(Box::new(Identity)));
pub(super) const STOP_GRADIENT: OpDef = OpDef::pure("StopGradient", |_| Ok(Box::new(Identity)));

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
