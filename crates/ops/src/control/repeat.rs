//! `While` and `StatelessWhile`: a function called on its own results as long as another says so.

use super::branch::truth;
use super::call::{owned, set_outputs};
use super::join::{join, join_all};
use super::ready::ReadyWhile;
use crate::env::{Env, Functions};
use crate::facts::FunctionCall;
use crate::op::ReadyOp;
use crate::prelude::*;

pub(super) const WHILE: OpDef =
    OpDef::of_kind("While", Kind::Writes, RowRule::Mixed, While::build).calls(FunctionCall::Loop);
// Never folded: it may take long, or have no end.
pub(super) const STATELESS_WHILE: OpDef =
    OpDef::of_kind("StatelessWhile", Kind::Reads, RowRule::Mixed, While::build)
        .calls(FunctionCall::Loop);

/// The number of times that the specs of a loop are inferred before those that still change are
/// given up.
const ROUNDS_MAX: usize = 6;

struct While {
    cond: String,
    body: String,
}

impl While {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        let function = |name| attrs.function(name).map(str::to_owned);
        Ok(Box::new(Self { cond: function("cond")?, body: function("body")? }))
    }
}

impl Op for While {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.iter().map(|input| Spec::unknown(input.dtype)).collect())
    }

    /// Infers the specs that hold before the first iteration and after each.
    fn infer_with(&self, inputs: &[Spec], functions: &dyn Functions) -> Result<Vec<Spec>> {
        let mut specs = inputs.to_vec();
        for _ in 0..ROUNDS_MAX {
            // A body that cannot take these inputs may never run.
            let Ok(after) = functions.infer(&self.body, &specs) else { return self.infer(inputs) };
            if !join_all(&mut specs, &after, join)? {
                return Ok(specs);
            }
        }
        // Sizes that grow from iteration to iteration never settle.
        let after = functions.infer(&self.body, &specs)?;
        let give_up = |a: &Spec, b: &Spec| {
            let joined = join(a, b)?;
            Ok(if joined.dims == a.dims { joined } else { Spec::unknown(a.dtype) })
        };
        join_all(&mut specs, &after, give_up)?;
        self.infer_settled(&specs, functions)
    }

    fn ready(&self, _: &[Spec], outputs: &[Spec], env: &Env<'_>) -> Option<ReadyOp> {
        let ready = |function: &str| env.functions.ready(function, outputs, env);
        ReadyWhile::build(ready(&self.cond)?, ready(&self.body)?, outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let env = ctx.env();
        let mut state = owned(ctx.inputs())?;
        loop {
            env.cancel.check()?;
            let goes_on = env.functions.call(&self.cond, &state, env)?;
            let [goes_on] = &goes_on[..] else {
                return invalid!("the condition of a loop must give one output");
            };
            if !truth(&goes_on.view())? {
                return set_outputs(ctx, state);
            }
            let next = env.functions.call(&self.body, &state, env)?;
            if next.len() != state.len() {
                let (got, expected) = (next.len(), state.len());
                return invalid!("the body of a loop gave {got} outputs instead of {expected}");
            }
            state = next;
        }
    }
}

impl While {
    /// `specs` if the body keeps them, else nothing but the dtypes.
    fn infer_settled(&self, specs: &[Spec], functions: &dyn Functions) -> Result<Vec<Spec>> {
        let after = functions.infer(&self.body, specs)?;
        let mut joined = specs.to_vec();
        if !join_all(&mut joined, &after, join)? {
            return Ok(joined);
        }
        Ok(specs.iter().map(|spec| Spec::unknown(spec.dtype)).collect())
    }
}
