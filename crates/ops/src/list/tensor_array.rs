//! `TensorArrayV3` and its kin: the lists of TensorFlow 1, which are changed in place.
//!
//! Follows `tensor_array.cc` and `tensor_array_ops.cc` of TensorFlow, whose texts the messages are.

mod ops;

use parking_lot::Mutex;

use super::items::Items;
use super::shapes::{self, ElementShape};
use super::tensor_list::{is_known, show};
use crate::prelude::*;

pub(super) use ops::{ARRAY, CLOSE, CONCAT, GATHER, READ, SCATTER, SIZE, SPLIT, WRITE};

/// The longest array that grows on demand.
const LENGTH_MAX: usize = 1 << 24;

/// The object that the handle of a tensor array points to. Each run makes its own.
#[derive(Debug)]
struct TensorArray {
    dtype: DType,
    /// `true` if a write behind the end is allowed.
    grows: bool,
    clears_after_read: bool,
    /// `true` if all elements have one shape, which the first decides.
    identical: bool,
    state: Mutex<TensorArrayState>,
}

#[derive(Debug)]
struct TensorArrayState {
    shape: ElementShape,
    items: Items,
    /// The marks of elements that were read, and cleared by that; there may be more elements.
    cleared: BookedVec<bool>,
    is_closed: bool,
}

impl TensorArrayState {
    fn is_cleared(&self, at: usize) -> bool {
        self.cleared.get(at).copied().unwrap_or(false)
    }
}

impl TensorArray {
    fn write(&self, index: i64, value: &View<'_>) -> Result<()> {
        let state = &mut *self.open()?;
        self.put(state, index, value)
    }

    /// The state of an array that was not closed.
    fn open(&self) -> Result<parking_lot::MutexGuard<'_, TensorArrayState>> {
        let state = self.state.lock();
        if state.is_closed {
            return invalid!("TensorArray has already been closed.");
        }
        Ok(state)
    }

    fn put(&self, state: &mut TensorArrayState, index: i64, value: &View<'_>) -> Result<()> {
        let length = state.items.len();
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
        self.check(state, index, value.dtype(), value.shape())?;
        if at >= length {
            state.items.resize(at + 1)?;
        }
        if state.items.get(at).is_some() || state.is_cleared(at) {
            return invalid!(
                "Could not write to TensorArray index {index} because it has already been written \
                 to."
            );
        }
        self.note_shape(state, value.shape());
        // One that grows would have to be stacked anew each time.
        if self.grows {
            return state.items.set(at, value.to_tensor()?);
        }
        state.items.set_in_place(at, value)
    }

    /// Makes the rows of a plain tensor all elements, if they are to be just that and none is
    /// written yet; says whether it did.
    fn put_rows(
        &self,
        state: &mut TensorArrayState,
        value: &View<'_>,
        row: &Shape,
    ) -> Result<bool> {
        let n_rows = value.shape()[0];
        let fits = n_rows > 0
            && !self.grows
            && value.dtype().is_plain()
            && state.items.len() == n_rows
            && state.items.is_unset()
            && !state.cleared.contains(&true);
        if fits {
            self.check(state, 0, value.dtype(), row)?;
            self.note_shape(state, row);
            state.items = Items::rows(value.to_tensor()?);
        }
        Ok(fits)
    }

    /// Fails if elements cannot be such.
    fn check(
        &self,
        state: &TensorArrayState,
        index: i64,
        dtype: DType,
        shape: &Shape,
    ) -> Result<()> {
        if dtype != self.dtype {
            let own = self.dtype;
            return invalid!(
                "Could not write to TensorArray index {index} because the value dtype is {dtype} \
                 but TensorArray dtype is {own}."
            );
        }
        if !shapes::takes(&state.shape, shape) {
            let own = show(&state.shape);
            return invalid!(
                "Could not write to TensorArray index {index} because the value shape is {shape} \
                 which is incompatible with the TensorArray's inferred element shape: {own} \
                 (consider setting infer_shape=False)."
            );
        }
        Ok(())
    }

    fn note_shape(&self, state: &mut TensorArrayState, shape: &Shape) {
        if self.identical {
            state.shape = Some(shape.iter().map(|size| Some(*size as i64)).collect());
        }
    }

    /// The place of an element that is about to be read, which is cleared if reads clear. What was
    /// written there stays until `release`. Fails if it cannot be read.
    fn take(&self, state: &mut TensorArrayState, index: i64, dtype: DType) -> Result<usize> {
        if dtype != self.dtype {
            let own = self.dtype;
            return invalid!("TensorArray dtype is {own} but Op requested dtype {dtype}.");
        }
        let length = state.items.len();
        let Some(at) = usize::try_from(index).ok().filter(|at| *at < length) else {
            return invalid!("Tried to read from index {index} but array size is: {length}");
        };
        if state.is_cleared(at) {
            return invalid!(
                "Could not read index {index} twice because it was cleared after a previous read \
                 (perhaps try setting clear_after_read = false?)."
            );
        }
        match state.items.get(at) {
            Some(_) if self.clears_after_read => {
                if state.cleared.len() <= at {
                    state.cleared.resize(length, false)?;
                }
                state.cleared[at] = true;
            }
            None if is_known(&state.shape).is_none() => {
                return invalid!(
                    "Could not read from TensorArray index {index}.  Furthermore, the element \
                     shape is not fully defined: {}.  It is possible you are working with a \
                     resizeable TensorArray and stop_gradients is not allowing the gradients to be \
                     written.",
                    show(&state.shape)
                );
            }
            Some(_) | None => {}
        }
        Ok(at)
    }

    /// The element at `at`.
    fn read(&self, state: &mut TensorArrayState, at: usize, dtype: DType) -> Result<Tensor> {
        let at = self.take(state, at as i64, dtype)?;
        let item = match state.items.get(at) {
            Some(item) => item.to_tensor()?,
            None => Tensor::zeros(dtype, is_known(&state.shape).unwrap_or_default())?,
        };
        self.release(state, at)?;
        Ok(item)
    }

    /// Gives up what was read.
    fn release(&self, state: &mut TensorArrayState, at: usize) -> Result<()> {
        if state.is_cleared(at) { state.items.forget(at) } else { Ok(()) }
    }
}
