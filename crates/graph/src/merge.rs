//! The ops that conditional nodes need: a choice of what is alive, whether anything is, and a
//! result that may be dead.
//!
//! In TensorFlow 1 a `Switch` makes one of its outputs dead, what reads something dead is dead, and
//! a `Merge` gives what is alive. Here a switch is no node: what depends on it has conditions.

use std::any::Any;
use std::sync::Arc;

use ops::{Ctx, Op, OpDef, RowRule};
use smallvec::SmallVec;
use tensor::{DType, Shape, Spec, Tensor, View};

use crate::graph::{Body, Port};

/// The conditions for a value to be alive: inputs, and the value that each must have. Read in
/// order: those after one that does not hold may be dead.
pub(crate) type Conditions = SmallVec<[(Port, bool); 2]>;

/// Conditions by the numbers of a node's inputs.
type MergeFlags = SmallVec<[(usize, bool); 2]>;

static MERGE: OpDef = internal("Merge");
static ANY: OpDef = internal("Alive");
static RESULT: OpDef = internal("Retval");

const fn internal(name: &'static str) -> OpDef {
    OpDef::pure(name, RowRule::Mixed, |_| {
        Err(ops::Error::Internal("it is made by tracing".to_owned()))
    })
}

/// A merge of `values`, each with what makes it alive; and the inputs of its node.
pub(crate) fn merge(dtype: DType, values: &[(Port, Conditions)]) -> (Body, Vec<Port>) {
    let mut inputs: Vec<Port> = values.iter().map(|(port, _)| *port).collect();
    let flags = values.iter().map(|(_, conditions)| flags(&mut inputs, values.len(), conditions));
    let flags = flags.collect();
    (Body::Op { def: &MERGE, op: Arc::new(Merge { dtype, flags }) }, inputs)
}

/// Builds a node that tells whether any of several conditions hold; returns its body and its
/// inputs.
pub(crate) fn any(conditions: &[Conditions]) -> (Body, Vec<Port>) {
    let mut inputs = Vec::new();
    let flags = conditions.iter().map(|conditions| flags(&mut inputs, 0, conditions)).collect();
    (Body::Op { def: &ANY, op: Arc::new(Alive { flags }) }, inputs)
}

/// A result that is dead if the node does not run.
pub(crate) fn result() -> Body {
    Body::Op { def: &RESULT, op: Arc::new(Retval) }
}

/// Returns whether an op is that of such a result.
pub(crate) fn is_result(def: &OpDef) -> bool {
    std::ptr::eq(def, &RESULT)
}

/// An op that fails: what was found wrong with a node before it is known whether it runs.
pub(crate) fn refusal(error: ops::Error) -> Arc<dyn Op> {
    Arc::new(MergeRefusal(error))
}

/// The numbers that conditions have among a node's inputs behind the first `n`.
fn flags(inputs: &mut Vec<Port>, n: usize, conditions: &[(Port, bool)]) -> MergeFlags {
    let mut number = |port: &Port| {
        let known = inputs[n..].iter().position(|input| input == port);
        known.map_or_else(
            || {
                inputs.push(*port);
                inputs.len() - 1
            },
            |at| n + at,
        )
    };
    conditions.iter().map(|(port, when)| (number(port), *when)).collect()
}

/// Returns whether a condition is as it must be; `None` if it is no scalar bool.
pub(crate) fn holds(condition: &View<'_>, when: bool) -> Option<bool> {
    let is_flag = condition.dtype() == DType::Bool && condition.n_elements() == 1;
    is_flag.then(|| (condition.bytes()[0] != 0) == when)
}

/// Returns whether all conditions hold.
fn all_hold(ctx: &Ctx<'_>, flags: &MergeFlags) -> ops::Result<bool> {
    for (input, when) in flags {
        match holds(&ctx.input(*input), *when) {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => return Err(no_flag()),
        }
    }
    Ok(true)
}

fn no_flag() -> ops::Error {
    // The text is TensorFlow's (`control_flow_ops.cc`).
    ops::Error::InvalidArgument("The second input must be a scalar".to_owned())
}

/// `Merge`: the first of its values that is alive, and its number.
pub(crate) struct Merge {
    pub(crate) dtype: DType,
    /// The conditions that make each value alive.
    flags: Vec<MergeFlags>,
}

impl Merge {
    /// The merge that a node is.
    pub(crate) fn from_op(op: &dyn Op) -> Option<&Self> {
        op.as_any()?.downcast_ref()
    }

    /// The number of values that the merge chooses from.
    pub(crate) fn n_values(&self) -> usize {
        self.flags.len()
    }

    /// Returns whether value number `i` is alive, if that is known.
    fn is_alive(&self, i: usize, inputs: &[Spec]) -> Option<bool> {
        let known = |(input, when): &(usize, bool)| {
            holds(&inputs.get(*input)?.as_constant()?.view(), *when)
        };
        let mut is_known = true;
        for flag in &self.flags[i] {
            match known(flag) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => is_known = false,
            }
        }
        is_known.then_some(true)
    }

    /// The value that it surely gives.
    pub(crate) fn chosen(&self, inputs: &[Spec]) -> Option<usize> {
        for i in 0..self.n_values() {
            match self.is_alive(i, inputs) {
                Some(true) => return Some(i),
                Some(false) => {}
                None => return None,
            }
        }
        None
    }
}

impl Op for Merge {
    fn infer(&self, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        let mut joined: Option<Spec> = None;
        for (i, value) in inputs.iter().enumerate().take(self.n_values()) {
            if self.is_alive(i, inputs) == Some(false) {
                continue;
            }
            joined = Some(match joined {
                None => value.clone(),
                Some(joined) => ops::join(&joined, value)?,
            });
        }
        let value = joined.unwrap_or_else(|| Spec::unknown(self.dtype));
        Ok(vec![value, Spec::scalar(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> ops::Result<()> {
        for (i, flags) in self.flags.iter().enumerate() {
            if all_hold(ctx, flags)? {
                let value = ctx.input(i);
                ctx.forward(0, value, value.shape().clone())?;
                let number = i32::try_from(i).expect("a node has few inputs");
                return ctx.set_output(1, Tensor::scalar(number)?);
            }
        }
        Err(ops::Error::Internal("a merge runs although nothing is alive".to_owned()))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// An op that tells whether any of several conditions hold.
struct Alive {
    flags: Vec<MergeFlags>,
}

impl Op for Alive {
    fn infer(&self, _: &[Spec]) -> ops::Result<Vec<Spec>> {
        Ok(vec![Spec::scalar(DType::Bool)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> ops::Result<()> {
        let mut any = false;
        for flags in &self.flags {
            any |= all_hold(ctx, flags)?;
        }
        ctx.output(0, DType::Bool, &Shape::scalar())?.bytes()[0] = u8::from(any);
        Ok(())
    }
}

/// Its input, which is dead if the node does not run.
struct Retval;

impl Op for Retval {
    fn infer(&self, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> ops::Result<()> {
        let input = ctx.input(0);
        ctx.forward(0, input, input.shape().clone())
    }
}

struct MergeRefusal(ops::Error);

impl Op for MergeRefusal {
    fn infer(&self, _: &[Spec]) -> ops::Result<Vec<Spec>> {
        Err(self.0.clone())
    }

    fn run(&self, _: &mut Ctx<'_>) -> ops::Result<()> {
        Err(self.0.clone())
    }
}
