//! `AssignVariableOp`, `AssignAddVariableOp`, `AssignSubVariableOp`.

use super::handle::variable;
use crate::combine::Combine;
use crate::prelude::*;

pub(super) const ASSIGN: OpDef =
    OpDef::of_kind("AssignVariableOp", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Assign { how: Combine::Update }))
    });
pub(super) const ASSIGN_ADD: OpDef =
    OpDef::of_kind("AssignAddVariableOp", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Assign { how: Combine::Add }))
    });
pub(super) const ASSIGN_SUB: OpDef =
    OpDef::of_kind("AssignSubVariableOp", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Assign { how: Combine::Sub }))
    });

struct Assign {
    how: Combine,
}

impl Op for Assign {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (variable, value) = (variable(ctx, 0)?, ctx.input(1));
        if self.how == Combine::Update {
            return variable.assign(value.to_tensor()?);
        }
        variable.combine(self.how, &value).map(|_| ())
    }
}
