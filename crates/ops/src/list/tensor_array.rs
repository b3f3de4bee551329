//! `TensorArrayV3` and its kin: the lists of TensorFlow 1, which are changed in place.
//!
//! Follows `tensor_array.cc` and `tensor_array_ops.cc` of TensorFlow, whose texts the messages are.

mod ops;

use parking_lot::Mutex;

use super::shapes::{self, ElementShape};
use super::tensor_list::{is_known, show};
use crate::prelude::*;

pub(super) use ops::{ARRAY, CLOSE, CONCAT, GATHER, READ, SCATTER, SIZE, SPLIT, WRITE};

/// The longest array that grows on demand.
const LENGTH_MAX: usize = 1 << 24;

/// What the handle of a tensor array points to. Each run makes its own.
#[derive(Debug)]
struct TensorArray {
    dtype: DType,
    /// Whether a write behind the end is allowed.
    grows: bool,
    clears_after_read: bool,
    /// Whether all elements have one shape, which the first decides.
    identical: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    shape: ElementShape,
    slots: Vec<Slot>,
    is_closed: bool,
}

#[derive(Debug, Clone)]
enum Slot {
    Empty,
    Full(Tensor),
    /// Read, and cleared by that.
    Cleared,
}

impl TensorArray {
    fn write(&self, index: i64, value: &View<'_>) -> Result<()> {
        let state = &mut *self.open()?;
        self.put(state, index, value.to_tensor()?)
    }

    /// The state of an array that was not closed.
    fn open(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_closed {
            return invalid!("TensorArray has already been closed.");
        }
        Ok(state)
    }

    fn put(&self, state: &mut State, index: i64, value: Tensor) -> Result<()> {
        let length = state.slots.len();
        let limit = if self.grows { LENGTH_MAX } else { length };
        let Some(at) = usize::try_from(index).ok().filter(|at| *at < limit) else {
            if !self.grows {
                return invalid!(
                    "Tried to write to index {index} but array is not resizeable and size is: \
                     {length}"
                );
            }
            return invalid!("Tried to write to index {index} of a TensorArray");
        };
        if value.dtype() != self.dtype {
            let (dtype, got) = (self.dtype, value.dtype());
            return invalid!(
                "Could not write to TensorArray index {index} because the value dtype is {got} but \
                 TensorArray dtype is {dtype}."
            );
        }
        if !shapes::takes(&state.shape, value.shape()) {
            let (shape, got) = (show(&state.shape), value.shape());
            return invalid!(
                "Could not write to TensorArray index {index} because the value shape is {got} \
                 which is incompatible with the TensorArray's inferred element shape: {shape} \
                 (consider setting infer_shape=False)."
            );
        }
        if at >= length {
            state.slots.resize(at + 1, Slot::Empty);
        }
        if !matches!(state.slots[at], Slot::Empty) {
            return invalid!(
                "Could not write to TensorArray index {index} because it has already been written \
                 to."
            );
        }
        if self.identical {
            state.shape = Some(value.shape().to_i64().into_iter().map(Some).collect());
        }
        state.slots[at] = Slot::Full(value);
        Ok(())
    }

    fn read(&self, index: i64, dtype: DType) -> Result<Tensor> {
        let state = &mut *self.open()?;
        self.take(state, index, dtype)
    }

    fn take(&self, state: &mut State, index: i64, dtype: DType) -> Result<Tensor> {
        if dtype != self.dtype {
            let own = self.dtype;
            return invalid!("TensorArray dtype is {own} but Op requested dtype {dtype}.");
        }
        let length = state.slots.len();
        let Some(at) = usize::try_from(index).ok().filter(|at| *at < length) else {
            return invalid!("Tried to read from index {index} but array size is: {length}");
        };
        match &state.slots[at] {
            Slot::Cleared => invalid!(
                "Could not read index {index} twice because it was cleared after a previous read \
                 (perhaps try setting clear_after_read = false?)."
            ),
            Slot::Full(value) => {
                let value = value.clone();
                if self.clears_after_read {
                    state.slots[at] = Slot::Cleared;
                }
                Ok(value)
            }
            Slot::Empty => match is_known(&state.shape) {
                Some(shape) => Ok(Tensor::zeros(dtype, shape)?),
                None => invalid!(
                    "Could not read from TensorArray index {index}.  Furthermore, the element \
                     shape is not fully defined: {}.  It is possible you are working with a \
                     resizeable TensorArray and stop_gradients is not allowing the gradients to be \
                     written.",
                    show(&state.shape)
                ),
            },
        }
    }
}
