//! `Tables`: a move that has, for each dimension, a list of the indices to take.

use smallvec::SmallVec;

use crate::prelude::*;

/// Output element `[i, j, …]` is input element `[first[i], second[j], …]`.
pub(super) struct Tables<'a> {
    /// One list behind another, one a dimension, each index times the dimension's stride.
    offsets: Part<'a, usize>,
    /// The lengths of the lists.
    lens: SmallVec<[usize; 6]>,
}

impl<'a> Tables<'a> {
    /// The move from a tensor of shape `from` to one of shape `to`; `fill` writes the indices of
    /// each dimension, which must be below its size.
    pub(super) fn new(
        from: &Shape,
        to: &Shape,
        scratch: &mut Scratch<'a>,
        fill: impl Fn(usize, &mut [usize]),
    ) -> Result<Self> {
        let lens: SmallVec<[usize; 6]> = to.iter().copied().collect();
        let mut offsets = scratch.part(lens.iter().sum())?;
        let mut rest = &mut offsets[..];
        for (axis, (len, stride)) in lens.iter().zip(from.strides()).enumerate() {
            let (table, after) = rest.split_at_mut(*len);
            fill(axis, table);
            table.iter_mut().for_each(|index| *index *= stride);
            rest = after;
        }
        Ok(Self { offsets, lens })
    }

    /// The bytes of scratch memory that it takes for an output of this spec.
    pub(super) fn bytes(to: &Spec) -> usize {
        let shape = to.shape().filter(|shape| shape.n_elements() > 0).unwrap_or_default();
        Scratch::bytes_of::<usize>(shape.iter().sum())
    }
}

impl Move for Tables<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if !output.is_empty() {
            pick((&self.lens, &self.offsets), 0, inputs[0], output);
        }
        Ok(())
    }
}

/// The move to a tensor without elements.
pub(super) struct Nothing;

impl Move for Nothing {
    fn apply<T: bytemuck::Pod + Send + Sync>(&self, _: &[&[T]], _: &mut [T]) -> Result<()> {
        Ok(())
    }
}

fn pick<T: Copy>((lens, offsets): (&[usize], &[usize]), start: usize, from: &[T], to: &mut [T]) {
    match lens {
        [] => to[0] = from[start],
        [_] => {
            for (offsets, to) in offsets.chunks(AT_ONCE).zip(to.chunks_mut(AT_ONCE)) {
                if is_stopped(to.len()) {
                    return;
                }
                offsets.iter().zip(to).for_each(|(offset, x)| *x = from[start + offset]);
            }
        }
        [first, inner @ ..] => {
            let (own, rest) = offsets.split_at(*first);
            let parts = to.chunks_exact_mut(to.len() / first);
            for (offset, part) in own.iter().zip(parts) {
                pick((inner, rest), start + offset, from, part);
            }
        }
    }
}
