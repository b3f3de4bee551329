//! `Scratch`: the scratch memory of a step, given out part by part.

use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use device::BookedVec;
use tensor::Spec;

use crate::error::Result;

/// The alignment of parts: they begin at multiples of so many bytes.
const ALIGNMENT: usize = 64;

/// The rest of the scratch memory of a step.
#[derive(Debug, Default)]
pub(crate) struct Scratch<'a>(&'a mut [u8]);

/// Elements in scratch memory, or on the heap if no scratch memory was planned for them.
#[derive(Debug)]
pub(crate) enum Part<'a, T> {
    Given(&'a mut [T]),
    /// On the heap and in the books.
    Own(BookedVec<T>),
    /// On the heap, and too small for the books.
    Small(Vec<T>),
}

/// Parts on the heap of no more bytes are not in the books: what is booked is predicted to the
/// byte, and what has no plan cannot be.
const SMALL_BYTES: usize = 4 << 10;

impl<'a> Scratch<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that a part of `n` elements takes.
    pub(crate) fn bytes_of<T>(n: usize) -> usize {
        n.saturating_mul(size_of::<T>()).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX)
    }

    /// The bytes that a part of as many elements as a tensor of this spec takes; none if its shape
    /// is not known.
    pub(crate) fn bytes_for<T>(spec: &Spec) -> usize {
        Self::bytes_of::<T>(spec.shape().map_or(0, |shape| shape.n_elements()))
    }

    /// Room for `n` elements; what they are is not specified. Fails without memory.
    pub(crate) fn part<T: Pod>(&mut self, n: usize) -> Result<Part<'a, T>> {
        let bytes = Self::bytes_of::<T>(n);
        // The last part may end where the memory does.
        let exact = n.saturating_mul(size_of::<T>());
        let bytes = if exact <= self.0.len() { bytes.min(self.0.len()) } else { 0 };
        let (memory, rest) = std::mem::take(&mut self.0).split_at_mut(bytes);
        self.0 = rest;
        match bytemuck::try_cast_slice_mut(&mut memory[..exact.min(bytes)]) {
            Ok(part) if part.len() == n => Ok(Part::Given(part)),
            _ if exact <= SMALL_BYTES => Ok(Part::Small(vec![T::zeroed(); n])),
            _ => Ok(Part::Own(BookedVec::filled(T::zeroed(), n)?)),
        }
    }
}

impl<T> Deref for Part<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Given(part) => part,
            Self::Own(part) => part,
            Self::Small(part) => part,
        }
    }
}

impl<T> DerefMut for Part<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Given(part) => part,
            Self::Own(part) => part,
            Self::Small(part) => part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_one_behind_another_until_there_is_no_more() {
        let mut lines = [0u128; 12];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
        assert_eq!(Scratch::bytes_of::<f32>(3) + Scratch::bytes_of::<u64>(16), bytes.len());
        let mut scratch = Scratch::new(bytes);
        let (mut floats, mut longs) =
            (scratch.part::<f32>(3).unwrap(), scratch.part::<u64>(16).unwrap());
        floats.fill(1.);
        longs.fill(2);
        assert!(matches!((&floats, &longs), (Part::Given(_), Part::Given(_))));
        assert!(matches!(scratch.part::<u8>(1), Ok(Part::Small(own)) if own[..] == [0]));
        assert!(matches!(scratch.part::<u8>(0), Ok(Part::Given([]))));
        assert_eq!((&floats[..], longs.len()), (&[1f32; 3][..], 16));
        assert_eq!((lines[1], lines[4]), (0, 2 | 2 << 64));
    }
}
