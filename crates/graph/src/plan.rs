//! `Plan`: the steps of a program for inputs of given shapes, and where each tensor lives.
//!
//! A tensor is in one of four places: it is an input, a constant, a span of the lane's workspace at
//! an offset that was packed beforehand, or an open slot that is filled while running (strings,
//! handles, shapes that depend on values, and results). Lifetimes of spans never cross where they
//! overlap: see the crate `offsets`.
//!
//! Where the device is not the host, strings, tables and what their ops make of them have a home on
//! the host, with offsets of their own in the lane's memory there; see `homes`.
//!
//! The plan of a function that a step calls is part of that step: its plain inputs and results are
//! in spans that the step gives it, in the same memory as its own, if their sizes are known.

mod build;
mod flops;
mod heap;
mod homes;
mod in_place;
mod offsets;
mod room;

use std::sync::Arc;

use device::{Booked, Home, Span};
use ops::{Env, Op, Packed};
use smallvec::SmallVec;
use tensor::{DType, Shape, Spec, Tensor};

pub(crate) use build::Size;
pub use homes::Homes;
pub(crate) use room::Capacities;
pub use room::Room;

use crate::error::Result;
use crate::program::Program;
use build::Scope;
use room::Missed;

/// Steps and their buffers for inputs of given shapes. There is one for each batch size, so lists
/// take no more room than they need.
#[derive(Debug)]
pub struct Plan {
    /// Its number among all plans.
    id: u64,
    pub(crate) steps: Box<[Step]>,
    pub(crate) consts: Box<[Tensor]>,
    /// The bytes of each open slot and of each input, as far as they are known.
    pub(crate) open: Box<[Size]>,
    input_bytes: Box<[usize]>,
    pub(crate) outputs: Box<[Place]>,
    /// For each input of a function the open slot that it comes in, if it is in no span.
    pub(crate) handed: Box<[Option<usize>]>,
    /// `true` if the size of every tensor is known.
    is_static: bool,
    /// The bytes of workspace alive while each step runs.
    live: Box<[u64]>,
    /// The bytes of workspace that the steps want.
    work_bytes: usize,
    /// The same of the part on the host, where that is another device.
    host_work_bytes: usize,
    /// The least that any order of offsets could do with: the most bytes alive at once.
    live_bytes: usize,
    /// The same of the part on the host.
    host_live_bytes: usize,
    /// The most that a kernel uses as scratch memory, on the device and on the host.
    kernel_bytes: [usize; 2],
    /// The most bytes for which offsets were searched in vain.
    missed: Missed,
    /// The heap bytes booked for the plan.
    booked: Option<Booked>,
}

/// The location of a tensor.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// An input of the run.
    Input(usize, Option<Shape>),
    /// A constant of the plan.
    Const(usize),
    /// A span of the workspace.
    Work(Placed),
    /// A slot that a step fills.
    Open(usize),
    /// A plain input of a function, in a span that the caller gives.
    Given(Given),
}

/// A tensor in a span that the caller of a function gives.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// The number of the input.
    pub(crate) number: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// A tensor in the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) span: Span,
}

/// One kernel call.
pub(crate) struct Step {
    /// The node, for messages.
    pub(crate) node: Arc<str>,
    pub(crate) op_name: &'static str,
    pub(crate) op: Arc<dyn Op>,
    /// The home that the step runs in; for a copy, its destination.
    pub(crate) home: Home,
    /// The op's inputs, and then the conditions.
    pub(crate) inputs: SmallVec<[Place; 4]>,
    /// The value that each condition must have; the step is left out otherwise.
    pub(crate) when: SmallVec<[bool; 2]>,
    pub(crate) outputs: SmallVec<[Place; 2]>,
    /// The input whose memory output 0 takes over, if one is.
    pub(crate) in_place: Option<usize>,
    pub(crate) scratch: Span,
    /// The most bytes of tensors outside the workspace that functions hold which it calls.
    pub(crate) inner_bytes: usize,
    /// The floating-point operations of the call, as far as shapes tell.
    pub(crate) flops: u64,
    pub(crate) packed: Arc<[Option<Packed>]>,
    /// Open slots that nobody needs after this step.
    pub(crate) closes: SmallVec<[usize; 2]>,
}

/// A step as people see it.
#[derive(Debug, Clone)]
pub struct StepSnapshot {
    /// The node's name.
    pub node: String,
    /// TensorFlow's name of the op.
    pub op: &'static str,
    /// The home that the step runs in; for a copy, its destination.
    pub home: Home,
    /// The bytes of workspace that its outputs and its scratch memory take.
    pub work_bytes: usize,
    /// The bytes that it reads and those that it writes, as far as they are known beforehand.
    pub read_bytes: usize,
    /// See `read_bytes`.
    pub written_bytes: usize,
    /// `true` if its output takes over the memory of an input.
    pub in_place: bool,
    /// The bytes of workspace alive while it runs.
    pub live_bytes: u64,
    /// Its floating-point operations, as far as shapes tell.
    pub flops: u64,
}

/// A search for the offsets of a plan: below which heights, and for how long.
struct PlanSearch<'a> {
    scope: Scope,
    capacities: &'a Capacities,
    should_stop: &'a mut dyn FnMut() -> bool,
}

impl Plan {
    /// Makes the plan of a program for inputs of these dtypes and shapes.
    pub(crate) fn build(program: &Program, inputs: &[Spec], env: &Env<'_>) -> Result<Self> {
        let (draft, _) = build::draft(program, inputs, env, Scope::Run)?;
        offsets::place(draft).booked(inputs.len())
    }

    /// The same with a workspace below these heights; `None` if no such offsets are found before
    /// `should_stop`, which is asked every few microseconds.
    pub(crate) fn build_within(
        program: &Program,
        inputs: &[Spec],
        env: &Env<'_>,
        (capacities, should_stop): (&Capacities, &mut dyn FnMut() -> bool),
    ) -> Result<Option<Self>> {
        let search = PlanSearch { scope: Scope::Run, capacities, should_stop };
        let plan = Self::search(program, inputs, env, search)?;
        plan.map(|plan| plan.booked(inputs.len())).transpose()
    }

    /// Makes the plan of a function for inputs of these specs, and says what it gives.
    pub(crate) fn build_function(
        program: &Program,
        inputs: &[Spec],
        env: &Env<'_>,
    ) -> Result<(Self, Vec<Spec>)> {
        let (draft, outputs) = build::draft(program, inputs, env, Scope::Call)?;
        Ok((offsets::place(draft).booked(0)?, outputs))
    }

    /// The same with a workspace below these heights, as [`Plan::build_within`].
    pub(crate) fn build_function_within(
        program: &Program,
        inputs: &[Spec],
        env: &Env<'_>,
        (capacities, should_stop): (&Capacities, &mut dyn FnMut() -> bool),
    ) -> Result<Option<Self>> {
        let search = PlanSearch { scope: Scope::Call, capacities, should_stop };
        let plan = Self::search(program, inputs, env, search)?;
        plan.map(|plan| plan.booked(0)).transpose()
    }

    /// Searches for offsets: first with functions that steps call as they are, then with others
    /// inside of those whose own memory is too much.
    fn search(
        program: &Program,
        inputs: &[Spec],
        env: &Env<'_>,
        search: PlanSearch<'_>,
    ) -> Result<Option<Self>> {
        let PlanSearch { scope, capacities, should_stop } = search;
        let draft = || build::draft(program, inputs, env, scope).map(|(draft, _)| draft);
        let first = draft()?;
        let can_be_lowered = first.steps.iter().any(build::DraftStep::can_be_lowered);
        let found = offsets::place_within(first, capacities, None, should_stop);
        if found.is_some() || !can_be_lowered {
            return Ok(found);
        }
        Ok(offsets::place_within(draft()?, capacities, Some(env), should_stop))
    }

    /// A number that no other plan of this process has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The bytes of workspace that a run takes.
    pub fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    /// The bytes of workspace that a run takes of the host, where that is another device.
    pub fn host_work_bytes(&self) -> usize {
        self.host_work_bytes
    }

    /// The most of the workspace in a home that a kernel uses as scratch memory; the rest is what
    /// steps pass on to each other.
    pub fn kernel_bytes(&self, home: Home) -> usize {
        match home {
            Home::Device => self.kernel_bytes[0],
            Home::Host => self.kernel_bytes[1],
        }
    }

    /// The bytes of tensors that live outside the workspace, results included, as far as they are
    /// known beforehand; without those on a host that is another device.
    pub fn open_bytes(&self) -> usize {
        let own = self.open.iter().filter(|open| open.home == Home::Device);
        own.map(|open| open.bytes).sum()
    }

    /// The most bytes of activations alive at once: no plan could take less.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The most bytes outside the workspace at once, as far as sizes are known: results, and what
    /// else is filled while running. What a function is handed counts.
    pub fn dynamic_bytes(&self) -> usize {
        self.dynamic_bytes_of(Home::Device)
    }

    /// The same on the host, where that is another device.
    pub fn host_dynamic_bytes(&self) -> usize {
        self.dynamic_bytes_of(Home::Host)
    }

    fn dynamic_bytes_of(&self, home: Home) -> usize {
        let bytes = |number: usize| match self.open[number] {
            Size { bytes, home: of } if of == home => bytes,
            Size { .. } => 0,
        };
        // What a step calls is planned with it only where it stays on the device.
        let inner = |step: &Step| if home == Home::Device { step.inner_bytes } else { 0 };
        let mut now: usize = self.handed.iter().flatten().map(|number| bytes(*number)).sum();
        let mut peak = now;
        for step in &self.steps {
            let moved = step.moved();
            now -= moved.map_or(0, bytes);
            for output in &step.outputs {
                if let Place::Open(number) = output {
                    now += bytes(*number);
                }
            }
            peak = peak.max(now + inner(step));
            let closes = step.closes.iter().filter(|number| Some(**number) != moved);
            now -= closes.map(|number| bytes(*number)).sum::<usize>();
        }
        peak
    }

    /// The bytes of what a function is handed.
    pub(crate) fn handed_bytes(&self) -> usize {
        self.handed.iter().flatten().map(|number| self.open[*number].bytes).sum()
    }

    /// Returns whether the size of every tensor is known before the run.
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// The floating-point operations of each step that computes on the device, as far as shapes
    /// tell.
    pub fn flops(&self) -> impl Iterator<Item = u64> {
        let computes = |step: &&Step| step.home == Home::Device && !step.is_copy();
        self.steps.iter().filter(computes).map(|step| step.flops)
    }

    /// The steps, for people.
    pub fn snapshot(&self) -> Vec<StepSnapshot> {
        let work_bytes = |place: &Place| match place {
            Place::Work(placed) => placed.span.len,
            Place::Input(..) | Place::Const(_) | Place::Open(_) | Place::Given(_) => 0,
        };
        let step = |(number, step): (usize, &Step)| StepSnapshot {
            node: step.node.to_string(),
            op: step.op_name,
            home: step.home,
            work_bytes: step.outputs.iter().map(work_bytes).sum::<usize>() + step.scratch.len,
            read_bytes: step.inputs.iter().map(|place| self.n_bytes(place)).sum(),
            written_bytes: step.outputs.iter().map(|place| self.n_bytes(place)).sum(),
            in_place: step.in_place.is_some(),
            live_bytes: self.live[number],
            flops: step.flops,
        };
        self.steps.iter().enumerate().map(step).collect()
    }

    /// The bytes of a tensor, as far as they are known.
    fn n_bytes(&self, place: &Place) -> usize {
        match place {
            Place::Work(placed) => placed.span.len,
            Place::Input(number, _) | Place::Given(Given { number, .. }) => {
                self.input_bytes[*number]
            }
            Place::Const(number) => self.consts[*number].n_bytes(),
            Place::Open(number) => self.open[*number].bytes,
        }
    }
}

impl Step {
    /// Returns whether all the step does is to copy a tensor to its reader's home.
    pub(crate) fn is_copy(&self) -> bool {
        self.op_name == homes::COPY
    }

    /// The open slot whose tensor becomes output 0.
    pub(crate) fn moved(&self) -> Option<usize> {
        match self.inputs[self.in_place?] {
            Place::Open(number) => Some(number),
            Place::Input(..) | Place::Const(_) | Place::Work(_) | Place::Given(_) => None,
        }
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} -> {:?}", self.node, self.inputs, self.outputs)
    }
}
