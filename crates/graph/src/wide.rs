//! `Wide`: room for the operands of a step that has many, kept by the thread from step to step.
//!
//! The operands of most steps are on the stack. Those of a concatenation of a hundred tensors are
//! not, and are in lists that one step leaves to the next, emptied.

use std::cell::RefCell;

use device::{Borrowed, Span};
use ops::{Output, Room};
use smallvec::SmallVec;
use tensor::View;

/// The most inputs and outputs that are on the stack.
const INPUTS_MAX: usize = 8;
const OUTPUTS_MAX: usize = 4;

/// The most that a thread keeps: as many as wide steps call each other.
const SPARE_MAX: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Wide>> = const { RefCell::new(Vec::new()) };
}

/// Lists without elements.
#[derive(Default)]
pub(crate) struct Wide {
    spans: [Vec<Span>; 2],
    reads: Vec<&'static [u8]>,
    writes: Vec<&'static mut [u8]>,
    inputs: Vec<View<'static>>,
    outputs: Vec<Output<'static>>,
}

/// The slices that a step reads, and those that it writes.
type WideSlices<'a> = (Vec<&'a [u8]>, Vec<&'a mut [u8]>);

impl Wide {
    /// The room for a step of so many operands, if it has many.
    pub(crate) fn for_step(n_inputs: usize, n_outputs: usize) -> Option<Self> {
        if n_inputs <= INPUTS_MAX && n_outputs <= OUTPUTS_MAX {
            return None;
        }
        Some(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }

    /// The room for spans that are read, and for those that are written.
    pub(crate) fn spans(&mut self) -> [Vec<Span>; 2] {
        std::mem::take(&mut self.spans)
    }

    /// The room for slices.
    pub(crate) fn slices<'a>(&mut self) -> WideSlices<'a> {
        (emptied(std::mem::take(&mut self.reads)), emptied(std::mem::take(&mut self.writes)))
    }

    /// The room for inputs and outputs.
    pub(crate) fn room<'a>(&mut self) -> Room<'a> {
        (emptied(std::mem::take(&mut self.inputs)), emptied(std::mem::take(&mut self.outputs)))
    }

    /// Takes all room back, for the next step.
    pub(crate) fn keep(
        spans: [SmallVec<[Span; INPUTS_MAX]>; 2],
        slices: Borrowed<'_>,
        room: Room<'_>,
    ) {
        let wide = Self {
            spans: spans.map(spilled),
            reads: emptied(spilled(slices.0)),
            writes: emptied(spilled(slices.1)),
            inputs: emptied(room.0),
            outputs: emptied(room.1),
        };
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(wide);
            }
        });
    }
}

/// The memory of a list that is not on the stack, without elements.
fn spilled<A: smallvec::Array>(mut list: SmallVec<A>) -> Vec<A::Item> {
    list.clear();
    list.into_vec()
}

/// The memory of a list for elements of as many bytes: collecting an empty list takes it over.
fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_goes_from_step_to_step() {
        assert!(Wide::for_step(INPUTS_MAX, OUTPUTS_MAX).is_none());
        let bytes = [1u8; 3];
        let mut wide = Wide::for_step(INPUTS_MAX + 1, 1).unwrap();
        let mut reads: SmallVec<[&[u8]; 8]> = SmallVec::from_vec(wide.slices().0);
        reads.extend(std::iter::repeat_n(&bytes[..], 100));
        let start = reads.as_ptr().cast::<u8>();
        Wide::keep([SmallVec::new(), SmallVec::new()], (reads, SmallVec::new()), wide.room());
        let (reads, _) = Wide::for_step(1, OUTPUTS_MAX + 1).unwrap().slices();
        assert!(reads.is_empty() && reads.capacity() >= 100);
        assert_eq!(reads.as_ptr().cast(), start);
    }
}
