//! `Op`: the meaning of a TensorFlow name, and `OpDef`: its line in a table.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use device::Home;
use tensor::{Handle, Spec, Tensor};

use crate::attrs::Attrs;
use crate::ctx::Ctx;
use crate::env::{Env, Functions};
use crate::error::Result;
use crate::facts::{Cost, Facts, FunctionCall, PassThrough, RowRule, VariableAccess};

/// An op with its attributes: one node's meaning.
pub trait Op: Send + Sync {
    /// The outputs' specs, given the inputs'. Fails where TensorFlow's shape function or kernel
    /// would surely fail. What is not known of the inputs leaves the outputs unknown; with concrete
    /// inputs, an output whose dimensions do not depend on values has a concrete shape.
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>>;

    /// Computes the outputs. Checks whatever `infer` may not have known.
    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()>;

    /// The input whose elements, unchanged and in the same order, are output 0: nothing is computed
    /// then, only the shape differs. Such an op has one output.
    fn alias(&self) -> Option<usize> {
        None
    }

    /// The input whose memory output 0 may take over, element by element, if nobody else needs it.
    /// The kernel then finds the input's elements in the output and `Ctx::is_in_place` true.
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// A form of the constant input number `input` that `run` is faster on, given to it by
    /// `Ctx::packed` instead of the tensor.
    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let _ = (input, weight);
        Ok(None)
    }

    /// The bytes of scratch memory that `run` wants, given by `Ctx::scratch`.
    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let _ = (inputs, outputs);
        0
    }

    /// The least scratch memory that other offsets in functions that it calls could do with.
    fn least_scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        self.scratch_bytes(inputs, outputs)
    }

    /// The same op, where functions that it calls have offsets with which it does with so much
    /// scratch memory, if such are found before `should_stop`.
    fn lowered(
        &self,
        scratch_bytes: usize,
        env: &Env<'_>,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Option<Arc<dyn Op>> {
        let _ = (scratch_bytes, env, should_stop);
        None
    }

    /// Returns the part of the op's scratch memory that is for kernels; the rest is passed on to
    /// functions that it calls.
    fn kernel_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        self.scratch_bytes(inputs, outputs)
    }

    /// Like `infer`, for ops that call functions.
    fn infer_with(&self, inputs: &[Spec], functions: &dyn Functions) -> Result<Vec<Spec>> {
        let _ = functions;
        self.infer(inputs)
    }

    /// A form of the op for inputs and outputs of these specs alone, for which all that depends on
    /// them was done: functions that it calls made ready, say. `None` if there is none.
    fn ready(&self, inputs: &[Spec], outputs: &[Spec], env: &Env<'_>) -> Option<ReadyOp> {
        let _ = (inputs, outputs, env);
        None
    }

    /// For a fusion pass: the op as its own type.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// An op for inputs of given specs.
pub struct ReadyOp {
    /// The op. Its scratch memory is also that of functions that it calls.
    pub op: Arc<dyn Op>,
    /// The most bytes of tensors outside the workspace that it holds while it runs, besides its
    /// inputs and outputs.
    pub open_bytes: usize,
    /// `true` if the size of every tensor is known before the function runs.
    pub is_static: bool,
    /// The outputs that are the inputs of the same number: they are not copied if nobody reads
    /// them.
    pub hands_on: Vec<usize>,
}

/// A packed weight.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The packed form; the op that packed it knows the type.
    pub object: Handle,
    /// The bytes that it holds.
    pub n_bytes: usize,
}

/// The effects of an op besides computing its outputs from its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it may be folded, shared, run twice or not at all.
    Pure,
    /// It finds an object of the servable by its attributes; the same each time.
    Handle,
    /// It draws random numbers, or reads state that others change.
    Reads,
    /// It changes state, or has an effect outside: it runs exactly once, in order.
    Writes,
}

/// Makes the op of a node from its attributes.
type OpBuild = fn(&Attrs<'_>) -> Result<Box<dyn Op>>;

/// A line in the table of a family: the TensorFlow name, what is known of the op, and how to build
/// it.
#[derive(Clone, Copy)]
pub struct OpDef {
    /// TensorFlow's name.
    pub name: &'static str,
    /// The effects of the op besides computing.
    pub kind: Kind,
    /// The facts by which others arrange the op.
    pub facts: Facts,
    /// Builds the op of a node from its attributes.
    pub build: OpBuild,
}

impl OpDef {
    /// A pure op.
    pub const fn pure(name: &'static str, rows: RowRule, build: OpBuild) -> Self {
        Self::of_kind(name, Kind::Pure, rows, build)
    }

    /// An op of another kind.
    pub const fn of_kind(name: &'static str, kind: Kind, rows: RowRule, build: OpBuild) -> Self {
        Self { name, kind, facts: Facts::usual(rows), build }
    }

    /// The same op, which treats rows so.
    pub const fn rows(self, rows: RowRule) -> Self {
        Self { facts: Facts { rows, ..self.facts }, ..self }
    }

    /// The same op, which calls these functions.
    pub const fn calls(self, calls: FunctionCall) -> Self {
        Self { facts: Facts { calls, ..self.facts }, ..self }
    }

    /// The same op, which costs so much.
    pub const fn costs(self, cost: Cost) -> Self {
        Self { facts: Facts { cost, ..self.facts }, ..self }
    }

    /// The same op, whose objects live on the host.
    pub const fn on_host(self) -> Self {
        Self { facts: Facts { home: Home::Host, ..self.facts }, ..self }
    }

    /// The same op, which hands these inputs on.
    pub const fn passes(self, passes: PassThrough) -> Self {
        Self { facts: Facts { passes, ..self.facts }, ..self }
    }

    /// The same op, which uses a variable so.
    pub const fn uses(self, variable: VariableAccess) -> Self {
        Self { facts: Facts { variable, ..self.facts }, ..self }
    }

    /// The same op, which does nothing but check its first input.
    pub const fn checks(self) -> Self {
        Self { facts: Facts { is_check: true, ..self.facts }, ..self }
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({}, {:?})", self.name, self.kind)
    }
}
