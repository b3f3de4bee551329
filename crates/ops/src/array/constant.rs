//! `Const`: a tensor that the graph holds.

use crate::prelude::*;

pub(super) const CONST: OpDef = OpDef::pure("Const", RowRule::Mixed, |attrs| {
    Ok(Box::new(Const { value: attrs.tensor("value")? }))
});
pub(super) const HOST_CONST: OpDef = OpDef::pure("HostConst", RowRule::Mixed, |attrs| {
    Ok(Box::new(Const { value: attrs.tensor("value")? }))
});

struct Const {
    value: Tensor,
}

impl Op for Const {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [] = arity(inputs)?;
        Ok(vec![Spec::constant(self.value.clone())])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        ctx.set_output(0, self.value.clone())
    }
}
