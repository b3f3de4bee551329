//! Homes of the tensors of a plan for a GPU: strings and tables on the host, numbers on the GPU.
//!
//! A step runs where its tensors can be. What it reads and is elsewhere is copied by a step of its
//! own, once. Handles are everywhere, and so are constants that are so small that they go along
//! with a call.

use std::sync::Arc;

use device::Home;
use ops::{Ctx, Facts, FunctionCall, Op};
use smallvec::smallvec;
use tensor::{DType, Spec, Tensor};

use super::build::{DraftStep, Drafter, Spot, n_bytes};
use crate::adopt;
use crate::error::{Error, Result};

/// The set of homes that the tensors of a program have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Homes {
    /// One: the device is the host.
    One,
    /// Two: strings and tables are on the host, numbers on the device. Inputs and results that are
    /// numbers are where `border` says.
    Two {
        /// The host for requests and replies; the device for functions that steps call.
        border: Home,
    },
}

/// TensorFlow has no such op.
pub(crate) const COPY: &str = "_Copy";

impl Homes {
    /// Those of a function that the program calls.
    pub(crate) fn of_functions(self) -> Self {
        match self {
            Self::One => Self::One,
            Self::Two { .. } => Self::Two { border: Home::Device },
        }
    }

    /// The home through which numbers come in and go out.
    pub(super) fn border(self) -> Home {
        match self {
            Self::One => Home::Device,
            Self::Two { border } => border,
        }
    }

    /// The home that a step runs in.
    pub(super) fn of_step(self, facts: &Facts, inputs: &[Spec], outputs: &[Spec]) -> Home {
        let is_text = |spec: &Spec| spec.dtype == DType::String;
        // What a call is given has homes of its own; it is the function's steps that run somewhere.
        let is_call = facts.calls != FunctionCall::Nothing;
        let is_on_host = self != Self::One
            && !is_call
            && (facts.home == Home::Host || inputs.iter().chain(outputs).any(is_text));
        if is_on_host { Home::Host } else { Home::Device }
    }
}

/// The home of a constant; `None` if it is everywhere.
fn home_of_const(value: &Tensor) -> Option<Home> {
    let is_small = value.n_bytes() < adopt::FROM_BYTES;
    (value.dtype().is_plain() && !is_small).then_some(Home::Device)
}

impl Drafter<'_> {
    /// The home of a tensor; `None` if it is everywhere.
    fn home(&self, spot: &Spot) -> Option<Home> {
        match spot {
            Spot::Input(..) | Spot::Given(..) => Some(self.homes.border()),
            Spot::Const(number) if self.draft.host_consts.contains(number) => Some(Home::Host),
            Spot::Const(number) => home_of_const(&self.draft.consts[*number]),
            Spot::Value(value, ..) => Some(self.draft.values[*value].home),
            Spot::Open(open) => Some(self.draft.open[*open].home),
        }
    }

    /// A tensor where a step wants it: the same, or a copy that is made before the step. Constants
    /// are copied now.
    pub(super) fn bring(&mut self, spot: Spot, spec: &Spec, home: Home) -> Result<Spot> {
        let is_there = self.home(&spot).is_none_or(|has| has == home);
        if self.homes == Homes::One || !spec.dtype.is_plain() || is_there {
            return Ok(spot);
        }
        if let Some(copy) = self.copies.get(&spot.key()) {
            return Ok(match (copy, spec.shape()) {
                (Spot::Value(value, dtype, _), Some(shape)) => Spot::Value(*value, *dtype, shape),
                (copy, _) => copy.clone(),
            });
        }
        let copy = match &spot {
            Spot::Const(number) => self.copy_const(*number)?,
            _ => {
                let to = match spec.shape() {
                    Some(shape) => self.add_value(spec.dtype, shape, home),
                    None => self.add_open(0, home),
                };
                self.copy(spot.clone(), to.clone(), home);
                to
            }
        };
        self.copies.insert(spot.key(), copy.clone());
        Ok(copy)
    }

    /// A result where results are.
    pub(super) fn bring_out(&mut self, spot: Spot, spec: Option<&Spec>) -> Spot {
        let border = self.homes.border();
        let is_there = self.home(&spot).is_none_or(|has| has == border);
        let Some(spec) = spec.filter(|spec| spec.dtype.is_plain() && !is_there) else {
            return spot;
        };
        if self.homes == Homes::One {
            return spot;
        }
        let bytes = spec.shape().map_or(0, |shape| n_bytes(spec.dtype, &shape));
        let to = self.add_open(bytes, border);
        self.copy(spot, to.clone(), border);
        to
    }

    fn copy(&mut self, from: Spot, to: Spot, home: Home) {
        self.draft.steps.push(DraftStep {
            node: Arc::from(match home {
                Home::Host => "to the host",
                Home::Device => "to the device",
            }),
            op_name: COPY,
            op: Arc::new(HomesCopy),
            kind: ops::Kind::Pure,
            home,
            inputs: smallvec![from],
            when: smallvec![],
            outputs: smallvec![to],
            scratch_bytes: 0,
            least_scratch_bytes: 0,
            kernel_bytes: 0,
            inner_bytes: 0,
            flops: 0,
            packed: Arc::new([]),
        });
    }

    /// A constant of the device for a step on the host.
    fn copy_const(&mut self, number: usize) -> Result<Spot> {
        let _scope = device::booked_on_host();
        let value = &self.draft.consts[number];
        let failed = |error: tensor::Error| Error::node("a constant on the host", error.into());
        let mut copy = Tensor::zeros(value.dtype(), value.shape().clone()).map_err(failed)?;
        if !copy.is_rehearsed() && !value.is_rehearsed() {
            let mut to = copy.view_mut().expect("a new tensor has one owner");
            to.bytes().copy_from_slice(value.view().bytes());
        }
        self.draft.consts.push(copy);
        let number = self.draft.consts.len() - 1;
        self.draft.host_consts.insert(number);
        Ok(Spot::Const(number))
    }
}

/// A tensor somewhere else.
struct HomesCopy;

impl Op for HomesCopy {
    fn infer(&self, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> ops::Result<()> {
        let (from, mut to) = ctx.unary()?;
        to.bytes().copy_from_slice(from.bytes());
        Ok(())
    }
}
