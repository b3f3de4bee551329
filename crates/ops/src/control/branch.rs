//! `If`, `StatelessIf`, `Case`, `StatelessCase`: a call of one of several functions.

use super::call::{owned, set_outputs};
use super::join::{join, join_all};
use super::ready::{Pick, ReadyCall};
use crate::env::{Env, Functions};
use crate::facts::FunctionCall;
use crate::op::ReadyOp;
use crate::prelude::*;

pub(super) const IF: OpDef = OpDef::of_kind("If", Kind::Writes, RowRule::Mixed, Branch::build_if)
    .calls(FunctionCall::Branch);
// A call is never folded: a loop in the function may take long, or have no end.
pub(super) const STATELESS_IF: OpDef =
    OpDef::of_kind("StatelessIf", Kind::Reads, RowRule::Mixed, Branch::build_if)
        .calls(FunctionCall::Branch);
pub(super) const CASE: OpDef =
    OpDef::of_kind("Case", Kind::Writes, RowRule::Mixed, Branch::build_case)
        .calls(FunctionCall::Choice);
pub(super) const STATELESS_CASE: OpDef =
    OpDef::of_kind("StatelessCase", Kind::Reads, RowRule::Mixed, Branch::build_case)
        .calls(FunctionCall::Choice);

struct Branch {
    branches: Vec<String>,
    by: By,
    outputs: Vec<DType>,
}

/// The way in which the first input picks a branch.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// The first if it is true, else the second.
    Truth,
    /// The one of that number, and the last for any other.
    Number,
}

impl By {
    /// The number of the branch of so many.
    pub(super) fn pick(self, chooser: &View<'_>, n_branches: usize) -> Result<usize> {
        match self {
            Self::Truth => Ok(usize::from(!truth(chooser)?)),
            Self::Number => {
                let last = n_branches - 1;
                Ok(usize::try_from(int(chooser)?).map_or(last, |number| number.min(last)))
            }
        }
    }
}

impl Branch {
    fn build_if(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        let branch = |name| attrs.function(name).map(str::to_owned);
        let branches = vec![branch("then_branch")?, branch("else_branch")?];
        Ok(Box::new(Self { branches, by: By::Truth, outputs: attrs.dtypes("Tout")? }))
    }

    fn build_case(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        let branches: Vec<String> =
            attrs.functions("branches")?.into_iter().map(str::to_owned).collect();
        if branches.is_empty() {
            return invalid!("a case needs at least one branch");
        }
        Ok(Box::new(Self { branches, by: By::Number, outputs: attrs.dtypes("Tout")? }))
    }

    fn pick(&self, chooser: &View<'_>) -> Result<&str> {
        Ok(&self.branches[self.by.pick(chooser, self.branches.len())?])
    }
}

impl Op for Branch {
    fn infer(&self, _: &[Spec]) -> Result<Vec<Spec>> {
        Ok(self.outputs.iter().map(|dtype| Spec::unknown(*dtype)).collect())
    }

    fn infer_with(&self, inputs: &[Spec], functions: &dyn Functions) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1)?;
        if let Some(chooser) = inputs[0].as_constant() {
            return functions.infer(self.pick(&chooser.view())?, &inputs[1..]);
        }
        // A branch that cannot take these inputs may not be the one that runs.
        let branch = |name| functions.infer(name, &inputs[1..]).or_else(|_| self.infer(inputs));
        let mut specs = branch(&self.branches[0])?;
        for name in &self.branches[1..] {
            join_all(&mut specs, &branch(name)?, join)?;
        }
        Ok(specs)
    }

    fn ready(&self, inputs: &[Spec], outputs: &[Spec], env: &Env<'_>) -> Option<ReadyOp> {
        let ready = |name: &String| env.functions.ready(name, &inputs[1..], env);
        let branches = self.branches.iter().map(ready).collect::<Option<_>>()?;
        ReadyCall::build(Pick::Branch(self.by), branches, &inputs[1..], outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let branch = self.pick(&ctx.input(0))?;
        let inputs = owned(&ctx.inputs()[1..])?;
        let outputs = ctx.env().functions.call(branch, &inputs, ctx.env())?;
        set_outputs(ctx, outputs)
    }
}

/// Returns whether a tensor is true: a scalar that is not zero or not empty, or a tensor with
/// elements. Follows `ToBool` in `functional_ops.cc` of TensorFlow.
pub(super) fn truth(value: &View<'_>) -> Result<bool> {
    if value.shape().rank() != 0 {
        return Ok(value.n_elements() > 0);
    }
    Ok(match value.dtype() {
        DType::F32 => value.as_slice::<f32>()[0] != 0.0,
        DType::F64 => value.as_slice::<f64>()[0] != 0.0,
        DType::String => !value.strings().get(0).is_empty(),
        dtype if dtype.is_integer() || dtype == DType::Bool => {
            value.bytes().iter().any(|byte| *byte != 0)
        }
        other => return invalid!("{other} cannot be converted to a bool"),
    })
}
