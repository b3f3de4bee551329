//! Runs a plan, step by step.

use std::sync::LazyLock;

use device::{Home, Span, Workspace};
use ops::{Ctx, Env, Output};
use smallvec::SmallVec;
use tensor::{DType, Shape, Tensor, View, ViewMut};

use crate::error::{Error, Result};
use crate::merge::holds;
use crate::plan::{Place, Placed, Plan, Step};

/// The shape of what is dead, and of an input that is found in the output.
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
    workspace.ensure_on_host(plan.host_work_bytes())?;
    let mut state = State { plan, inputs, open: vec![None; plan.open.len()] };
    for (number, step) in plan.steps.iter().enumerate() {
        env.cancel.check().map_err(Error::Stopped)?;
        let _scope = (step.home == Home::Host).then(device::booked_on_host);
        let made = state.run(step, env, workspace);
        let made = made.map_err(|error| Error::node(&step.node, error))?;
        state.keep(step, made);
        observe(number);
    }
    let outputs = plan.outputs.iter().enumerate();
    outputs.map(|(number, place)| state.output(number, place)).collect()
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
        let (operands, conditions) = step.inputs.split_at(step.inputs.len() - step.when.len());
        if !self.all_hold(conditions, &step.when, workspace)? {
            return Ok(step.outputs.iter().map(|_| None).collect());
        }
        if step.is_copy() {
            match self.n_bytes(&operands[0]) {
                Some(bytes) => workspace.note_copied(bytes),
                // What is dead is dead everywhere.
                None => return Ok(step.outputs.iter().map(|_| None).collect()),
            }
        }
        // An input in the memory of the output is found there, and empty.
        let taken = |number: usize| step.in_place == Some(number);
        let reads = operands.iter().enumerate().filter(|(number, _)| !taken(*number));
        let reads: SmallVec<[Span; 4]> = reads.filter_map(|(_, place)| span(place)).collect();
        let mut writes: SmallVec<[Span; 3]> = step.outputs.iter().filter_map(span).collect();
        writes.push(step.scratch);
        let (reads, mut writes) = workspace.borrow(&reads, &writes);
        let scratch = writes.pop().expect("scratch was asked for last");
        let mut reads = reads.into_iter();
        let mut writes = writes.into_iter();
        let inputs = operands.iter().enumerate().map(|(number, place)| match place {
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

    /// Whether conditions are as they must be. Those after one that is not may be dead.
    fn all_hold(
        &self,
        conditions: &[Place],
        when: &[bool],
        workspace: &mut Workspace,
    ) -> ops::Result<bool> {
        for (place, when) in conditions.iter().zip(when) {
            let held = match place {
                Place::Work(placed) => {
                    let (reads, _) = workspace.borrow(&[placed.span], &[]);
                    holds(&View::plain(placed.dtype, &placed.shape, reads[0]), *when)
                }
                place => holds(&self.view(place), *when),
            };
            match held {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => {
                    // The text is TensorFlow's (`control_flow_ops.cc`).
                    let text = "The second input must be a scalar, but it has another shape";
                    return Err(ops::Error::InvalidArgument(text.to_owned()));
                }
            }
        }
        Ok(true)
    }

    /// The bytes of a tensor; `None` if it is dead.
    fn n_bytes(&self, place: &Place) -> Option<usize> {
        Some(match place {
            Place::Input(number, _) => self.inputs[*number].n_bytes(),
            Place::Const(number) => self.plan.consts[*number].n_bytes(),
            Place::Work(placed) => placed.span.len,
            Place::Open(number) => self.open[*number].as_ref()?.n_bytes(),
        })
    }

    /// A tensor that is not in the workspace. A slot that nobody filled is dead.
    fn view<'a>(&'a self, place: &'a Place) -> View<'a> {
        match place {
            Place::Input(number, None) => self.inputs[*number].view(),
            Place::Input(number, Some(shape)) => {
                let view = self.inputs[*number].view();
                View::plain(view.dtype(), shape, view.bytes())
            }
            Place::Const(number) => self.plan.consts[*number].view(),
            Place::Open(number) => {
                let dead = || View::plain(DType::U8, &EMPTY, &[]);
                self.open[*number].as_ref().map_or_else(dead, Tensor::view)
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

    fn output(&self, number: usize, place: &Place) -> Result<Tensor> {
        let bad = |error: tensor::Error| Error::BadInput(error.to_string());
        match place {
            Place::Input(number, None) => Ok(self.inputs[*number].clone()),
            Place::Input(number, Some(shape)) => {
                self.inputs[*number].reshaped(shape.clone()).map_err(bad)
            }
            Place::Const(number) => Ok(self.plan.consts[*number].clone()),
            Place::Open(open) => {
                // The text is TensorFlow's (`executor.cc`).
                let dead = || Error::BadInput(format!("Retval[{number}] does not have value"));
                self.open[*open].clone().ok_or_else(dead)
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
