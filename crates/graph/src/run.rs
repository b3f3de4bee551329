//! Runs a plan, step by step.

use std::sync::LazyLock;

use device::{Borrowed, Home, Memory, Span, Workspace};
use ops::{Ctx, Env, Frame, Made, Observer, Output};
use smallvec::SmallVec;
use tensor::{DType, Shape, Tensor, View, ViewMut};

use crate::error::{Error, Result};
use crate::merge::holds;
use crate::plan::{Given, Place, Placed, Plan, Step};
use crate::wide::Wide;

/// The shape of what is dead, and of an input that is found in the output.
static EMPTY: LazyLock<Shape> = LazyLock::new(|| Shape::of(&[0]));

/// Runs a plan on its inputs.
pub(crate) fn run(
    plan: &Plan,
    inputs: &[Tensor],
    env: &Env<'_>,
    workspace: &mut Workspace,
) -> Result<Vec<Tensor>> {
    workspace.ensure(plan.work_bytes())?;
    workspace.ensure_on_host(plan.host_work_bytes())?;
    for home in [Home::Device, Home::Host] {
        workspace.note_scratch(home, plan.kernel_bytes(home));
    }
    let mut open = vec![None; plan.open.len()];
    let mut state = RunState { plan, inputs: RunInputs::Tensors(inputs), work: 0, open: &mut open };
    let mut memory = workspace.memory();
    let done = state.run_all(env, &mut memory);
    let copied = memory.copied_bytes;
    workspace.note_copied(copied);
    done?;
    let outputs = plan.outputs.iter().enumerate();
    outputs.map(|(number, place)| state.output(number, place)).collect()
}

/// Runs the plan of a function in memory of its caller.
pub(crate) fn run_function(plan: &Plan, frame: Frame<'_>, env: &Env<'_>) -> Result<()> {
    let Frame { memory, work, inputs, outputs, handed, open } = frame;
    open.clear();
    open.resize(plan.open.len(), None);
    for (slot, tensor) in plan.handed.iter().zip(&mut *handed) {
        if let Some(slot) = slot {
            open[*slot] = tensor.take();
        }
    }
    let mut state = RunState { plan, inputs: RunInputs::Spans(inputs), work, open };
    // Nothing of such a plan is on a host that is another device.
    let mut all = Memory { device: memory, host: &mut [], copied_bytes: 0 };
    state.run_all(env, &mut all)?;
    let memory = all.device;
    for (number, place) in plan.outputs.iter().enumerate() {
        let to = outputs.get(number).copied().flatten();
        match (state.span(place), to) {
            (Some(from), Some(to)) if from == to => {}
            (Some(from), Some(to)) => {
                memory.copy_within(from.offset..from.offset + from.len, to.offset);
            }
            (Some(from), None) => {
                handed[number] = Some(tensor_of(place, &memory[from.offset..][..from.len])?);
            }
            (None, Some(to)) => {
                let value = state.output(number, place)?;
                memory[to.offset..][..to.len].copy_from_slice(value.view().bytes());
            }
            (None, None) => handed[number] = Some(state.output(number, place)?),
        }
    }
    open.clear();
    Ok(())
}

/// The contents of a span, as a tensor of its own.
fn tensor_of(place: &Place, bytes: &[u8]) -> Result<Tensor> {
    let (Place::Work(Placed { dtype, shape, .. }) | Place::Given(Given { dtype, shape, .. })) =
        place
    else {
        unreachable!("only these are in spans")
    };
    let tensor = Tensor::from_bytes(*dtype, shape.clone(), bytes);
    tensor.map_err(|error| Error::BadInput(error.to_string()))
}

struct RunState<'a> {
    plan: &'a Plan,
    inputs: RunInputs<'a>,
    /// The offset of the plan's workspace in the memory.
    work: usize,
    open: &'a mut Vec<Option<Tensor>>,
}

/// The inputs of a plan.
enum RunInputs<'a> {
    /// Of a run.
    Tensors(&'a [Tensor]),
    /// Of a function, if they are plain and of known size.
    Spans(&'a [Option<Span>]),
}

impl RunState<'_> {
    /// Runs all steps, and tells whoever watches.
    fn run_all(&mut self, env: &Env<'_>, memory: &mut Memory<'_>) -> Result<()> {
        let observer = env.functions.observer();
        let Some(observer) = observer else { return self.run_steps(env, memory, None) };
        observer.enter(self.plan);
        let done = self.run_steps(env, memory, Some(observer));
        observer.leave();
        done
    }

    fn run_steps(
        &mut self,
        env: &Env<'_>,
        memory: &mut Memory<'_>,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        for (number, step) in self.plan.steps.iter().enumerate() {
            env.cancel.check().map_err(Error::Stopped)?;
            let _scope = (step.home == Home::Host).then(device::booked_on_host);
            let made = self.run(step, env, memory);
            let made = made.map_err(|error| match env.cancel.check() {
                Ok(()) => Error::node(&step.node, error),
                // A kernel that is left early may stumble over what it did not write.
                Err(stopped) => Error::Stopped(stopped),
            })?;
            self.keep(step, made);
            if let Some(observer) = observer {
                observer.step(number);
            }
        }
        // The last kernel may have been left early, too.
        env.cancel.check().map_err(Error::Stopped)
    }

    fn run(&mut self, step: &Step, env: &Env<'_>, memory: &mut Memory<'_>) -> ops::Result<Made> {
        let (operands, conditions) = step.inputs.split_at(step.inputs.len() - step.when.len());
        if !self.all_hold(conditions, &step.when, memory)? {
            return Ok(Made::new());
        }
        if step.is_copy() {
            match self.n_bytes(&operands[0]) {
                Some(bytes) => memory.copied_bytes += bytes as u64,
                // What is dead is dead everywhere.
                None => return Ok(Made::new()),
            }
        }
        // A list that nobody else needs is changed rather than copied.
        let mut moved = step.moved().and_then(|number| self.open[number].take());
        // An input in the memory of the output is found there, and empty.
        let taken = |number: usize| step.in_place == Some(number);
        let mut wide = Wide::for_step(operands.len(), step.outputs.len());
        let [read_spans, write_spans] = wide.as_mut().map(Wide::spans).unwrap_or_default();
        let mut read_spans: SmallVec<[Span; 8]> = SmallVec::from_vec(read_spans);
        let mut write_spans: SmallVec<[Span; 8]> = SmallVec::from_vec(write_spans);
        let reads = operands.iter().enumerate().filter(|(number, _)| !taken(*number));
        read_spans.extend(reads.filter_map(|(_, place)| self.span(place)));
        write_spans.extend(step.outputs.iter().filter_map(|place| self.span(place)));
        write_spans.push(self.in_work(step.scratch));
        let mut slices = Borrowed::default();
        if let Some(wide) = &mut wide {
            let (reads, writes) = wide.slices();
            slices = (SmallVec::from_vec(reads), SmallVec::from_vec(writes));
        }
        memory.borrow_into(&read_spans, &write_spans, &mut slices);
        let scratch = slices.1.pop().expect("scratch was asked for last");
        let mut reads = slices.0.drain(..);
        let mut writes = slices.1.drain(..);
        let inputs = operands.iter().enumerate().map(|(number, place)| match place {
            Place::Work(placed) if taken(number) => View::plain(placed.dtype, &EMPTY, &[]),
            _ if taken(number) => View::plain(DType::U8, &EMPTY, &[]),
            Place::Work(Placed { dtype, shape, .. }) | Place::Given(Given { dtype, shape, .. }) => {
                let bytes = reads.next().expect("one read span an input");
                View::plain(*dtype, shape, bytes)
            }
            place => self.view(place),
        });
        let outputs = step.outputs.iter().map(|place| match place {
            Place::Work(Placed { dtype, shape, .. }) => {
                let bytes = writes.next().expect("one written span an output");
                Output::Planned(ViewMut::plain(*dtype, shape, bytes))
            }
            Place::Input(..) | Place::Const(_) | Place::Open(_) | Place::Given(_) => {
                Output::Open(moved.take())
            }
        });
        let mut ctx = Ctx::empty(env);
        if let Some(wide) = &mut wide {
            ctx.set_room(wide.room());
        }
        ctx.fill(inputs, outputs);
        ctx.set_packed(&step.packed);
        ctx.set_scratch(scratch);
        ctx.set_in_place(step.in_place.is_some());
        step.op.run(&mut ctx)?;
        let made = ctx.finish();
        if wide.is_some() {
            let room = ctx.into_room();
            drop((reads, writes));
            Wide::keep([read_spans, write_spans], slices, room);
        }
        made
    }

    /// Returns whether conditions are as they must be. Those after one that is not may be dead.
    fn all_hold(
        &self,
        conditions: &[Place],
        when: &[bool],
        memory: &mut Memory<'_>,
    ) -> ops::Result<bool> {
        for (place, when) in conditions.iter().zip(when) {
            let held = match (place, self.span(place)) {
                (
                    Place::Work(Placed { dtype, shape, .. })
                    | Place::Given(Given { dtype, shape, .. }),
                    Some(span),
                ) => {
                    let (reads, _) = memory.borrow(&[span], &[]);
                    holds(&View::plain(*dtype, shape, reads[0]), *when)
                }
                (place, _) => holds(&self.view(place), *when),
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
            Place::Input(number, _) => self.input(*number).n_bytes(),
            Place::Const(number) => self.plan.consts[*number].n_bytes(),
            Place::Work(_) | Place::Given(_) => self.span(place)?.len,
            Place::Open(number) => self.open[*number].as_ref()?.n_bytes(),
        })
    }

    /// A tensor that is not in the workspace. A slot that nobody filled is dead.
    fn view<'a>(&'a self, place: &'a Place) -> View<'a> {
        match place {
            Place::Input(number, None) => self.input(*number).view(),
            Place::Input(number, Some(shape)) => {
                let view = self.input(*number).view();
                View::plain(view.dtype(), shape, view.bytes())
            }
            Place::Const(number) => self.plan.consts[*number].view(),
            Place::Open(number) => {
                let dead = || View::plain(DType::U8, &EMPTY, &[]);
                self.open[*number].as_ref().map_or_else(dead, Tensor::view)
            }
            Place::Work(_) | Place::Given(_) => unreachable!("the caller reads the workspace"),
        }
    }

    fn input(&self, number: usize) -> &Tensor {
        match self.inputs {
            RunInputs::Tensors(tensors) => &tensors[number],
            RunInputs::Spans(_) => unreachable!("inputs of a function are given or handed"),
        }
    }

    /// The span of a tensor in the memory, if it is there.
    fn span(&self, place: &Place) -> Option<Span> {
        match (place, &self.inputs) {
            (Place::Work(placed), _) => Some(self.in_work(placed.span)),
            (Place::Given(given), RunInputs::Spans(spans)) => spans[given.number],
            _ => None,
        }
    }

    /// A span of the plan's workspace, in the memory.
    fn in_work(&self, span: Span) -> Span {
        Span { offset: self.work + span.offset, ..span }
    }

    /// Keeps what a step made, and drops what nobody needs any more. What was not made is dead: its
    /// slot is empty.
    fn keep(&mut self, step: &Step, made: Made) {
        for (output, tensor) in made {
            if let Place::Open(number) = step.outputs[output] {
                self.open[number] = Some(tensor);
            }
        }
        for number in &step.closes {
            self.open[*number] = None;
        }
    }

    fn output(&self, number: usize, place: &Place) -> Result<Tensor> {
        let bad = |error: tensor::Error| Error::BadInput(error.to_string());
        match place {
            Place::Input(number, None) => Ok(self.input(*number).clone()),
            Place::Input(number, Some(shape)) => {
                self.input(*number).reshaped(shape.clone()).map_err(bad)
            }
            Place::Const(number) => Ok(self.plan.consts[*number].clone()),
            Place::Open(open) => {
                // The text is TensorFlow's (`executor.cc`).
                let dead = || Error::BadInput(format!("Retval[{number}] does not have value"));
                self.open[*open].clone().ok_or_else(dead)
            }
            Place::Work(_) | Place::Given(_) => unreachable!("results are in no span"),
        }
    }
}
