//! The heap bytes of a plan, which are booked for as long as it lives.

use device::Booked;
use smallvec::{Array, SmallVec};

use super::{Given, Place, Placed, Plan, Step};
use crate::error::Result;
use crate::program::Known;

impl Plan {
    /// The bytes of the heap that the plan holds: itself and its lists, without what it shares with
    /// its program, and without tensors, which are booked for themselves.
    pub fn heap_bytes(&self) -> usize {
        let steps = self.steps.iter().map(Step::heap_bytes).sum::<usize>();
        let outputs = self.outputs.iter().map(Place::heap_bytes).sum::<usize>();
        size_of::<Self>()
            + steps
            + outputs
            + size_of_val(&*self.steps)
            + size_of_val(&*self.consts)
            + size_of_val(&*self.open)
            + size_of_val(&*self.input_bytes)
            + size_of_val(&*self.outputs)
            + size_of_val(&*self.handed)
            + size_of_val(&*self.live)
    }

    /// The same plan, with what it holds of the heap in the books of whom this thread works for; so
    /// is the key that it is kept by, if it is for so many inputs of a run.
    pub(super) fn booked(mut self, n_inputs: usize) -> Result<Self> {
        let key_bytes = n_inputs * size_of::<Known>();
        self.booked = Some(Booked::new(self.heap_bytes() + key_bytes)?);
        Ok(self)
    }
}

impl Step {
    fn heap_bytes(&self) -> usize {
        let places = self.inputs.iter().chain(&self.outputs);
        places.map(Place::heap_bytes).sum::<usize>()
            + spilled(&self.inputs)
            + spilled(&self.outputs)
            + spilled(&self.when)
            + spilled(&self.closes)
    }
}

impl Place {
    fn heap_bytes(&self) -> usize {
        match self {
            Place::Input(_, Some(shape))
            | Place::Work(Placed { shape, .. })
            | Place::Given(Given { shape, .. }) => shape.heap_bytes(),
            Place::Input(_, None) | Place::Const(_) | Place::Open(_) => 0,
        }
    }
}

/// The bytes of a list that has become too long for its place.
fn spilled<A: Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() { list.capacity() * size_of::<A::Item>() } else { 0 }
}
