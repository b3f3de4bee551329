//! Runs a plan, step by step.

use std::sync::LazyLock;

use device::{Span, Workspace};
use ops::{Ctx, Env, Output};
use smallvec::SmallVec;
use tensor::{Shape, Tensor, View, ViewMut};

use crate::error::{Error, Result};
use crate::plan::{Place, Placed, Plan, Step};

/// The shape of an input that is found in the output.
static EMPTY: LazyLock<Shape> = LazyLock::new(|| Shape::of(&[0]));

/// Runs a plan on its inputs.
pub(crate) fn run(
    plan: &Plan,
    inputs: &[Tensor],
    env: &Env<'_>,
    workspace: &mut Workspace,
) -> Result<Vec<Tensor>> {
    run_observed(plan, inputs, env, workspace, &mut |_| ())
}

/// Runs a plan, and calls `observe` with the number of each step when it is done.
pub(crate) fn run_observed(
    plan: &Plan,
    inputs: &[Tensor],
    env: &Env<'_>,
    workspace: &mut Workspace,
    observe: &mut dyn FnMut(usize),
) -> Result<Vec<Tensor>> {
    workspace.ensure(plan.work_bytes())?;
    let mut state = State { plan, inputs, open: vec![None; plan.open_bytes.len()] };
    for (number, step) in plan.steps.iter().enumerate() {
        env.cancel.check().map_err(Error::Stopped)?;
        let made = state.run(step, env, workspace);
        let made = made.map_err(|error| Error::node(&step.node, error))?;
        state.keep(step, made);
        observe(number);
    }
    plan.outputs.iter().map(|place| state.output(place)).collect()
}

struct State<'a> {
    plan: &'a Plan,
    inputs: &'a [Tensor],
    open: Vec<Option<Tensor>>,
}

/// The tensors that a step made for open slots.
type Made = SmallVec<[Option<Tensor>; 2]>;

impl State<'_> {
    fn run(&self, step: &Step, env: &Env<'_>, workspace: &mut Workspace) -> ops::Result<Made> {
        // An input in the memory of the output is found there, and empty.
        let taken = |number: usize| step.in_place == Some(number);
        let reads = step.inputs.iter().enumerate().filter(|(number, _)| !taken(*number));
        let reads: SmallVec<[Span; 4]> = reads.filter_map(|(_, place)| span(place)).collect();
        let mut writes: SmallVec<[Span; 3]> = step.outputs.iter().filter_map(span).collect();
        writes.push(step.scratch);
        let (reads, mut writes) = workspace.borrow(&reads, &writes);
        let scratch = writes.pop().expect("scratch was asked for last");
        let mut reads = reads.into_iter();
        let mut writes = writes.into_iter();
        let inputs = step.inputs.iter().enumerate().map(|(number, place)| match place {
            Place::Work(placed) if taken(number) => View::plain(placed.dtype, &EMPTY, &[]),
            Place::Work(placed) => {
                let bytes = reads.next().expect("one read span an input");
                View::plain(placed.dtype, &placed.shape, bytes)
            }
            place => self.view(place),
        });
        let outputs = step.outputs.iter().map(|place| match place {
            Place::Work(Placed { dtype, shape, .. }) => {
                let bytes = writes.next().expect("one written span an output");
                Output::Planned(ViewMut::plain(*dtype, shape, bytes))
            }
            Place::Input(..) | Place::Const(_) | Place::Open(_) => Output::Open(None),
        });
        let ctx = Ctx::new(inputs, outputs, env);
        let mut ctx = ctx.with_packed(&step.packed).with_scratch(scratch);
        if step.in_place.is_some() {
            ctx = ctx.with_in_place();
        }
        step.op.run(&mut ctx)?;
        ctx.finish()
    }

    /// A tensor that is not in the workspace.
    fn view<'a>(&'a self, place: &'a Place) -> View<'a> {
        match place {
            Place::Input(number, None) => self.inputs[*number].view(),
            Place::Input(number, Some(shape)) => {
                let view = self.inputs[*number].view();
                View::plain(view.dtype(), shape, view.bytes())
            }
            Place::Const(number) => self.plan.consts[*number].view(),
            Place::Open(number) => {
                self.open[*number].as_ref().expect("a slot is filled before it is read").view()
            }
            Place::Work(_) => unreachable!("the caller reads the workspace"),
        }
    }

    /// Keeps what a step made, and drops what nobody needs any more.
    fn keep(&mut self, step: &Step, made: Made) {
        for (place, tensor) in step.outputs.iter().zip(made) {
            if let Place::Open(number) = place {
                self.open[*number] = tensor;
            }
        }
        for number in &step.closes {
            self.open[*number] = None;
        }
    }

    fn output(&self, place: &Place) -> Result<Tensor> {
        let bad = |error: tensor::Error| Error::BadInput(error.to_string());
        match place {
            Place::Input(number, None) => Ok(self.inputs[*number].clone()),
            Place::Input(number, Some(shape)) => {
                self.inputs[*number].reshaped(shape.clone()).map_err(bad)
            }
            Place::Const(number) => Ok(self.plan.consts[*number].clone()),
            Place::Open(number) => {
                Ok(self.open[*number].clone().expect("results are filled by their steps"))
            }
            Place::Work(_) => unreachable!("results are never in the workspace"),
        }
    }
}

fn span(place: &Place) -> Option<Span> {
    match place {
        Place::Work(placed) => Some(placed.span),
        Place::Input(..) | Place::Const(_) | Place::Open(_) => None,
    }
}
