//! `Tables`: a move that has, for each dimension, a list of the indices to take.

use crate::prelude::*;

/// Output element `[i, j, …]` is input element `[first[i], second[j], …]`.
pub(super) struct Tables {
    /// One list a dimension, each index times the dimension's stride.
    offsets: Vec<Vec<usize>>,
}

impl Tables {
    /// The move from a tensor of shape `from`; indices must be below its sizes.
    pub(super) fn new(from: &Shape, mut tables: Vec<Vec<usize>>) -> Self {
        for (table, stride) in tables.iter_mut().zip(from.strides()) {
            table.iter_mut().for_each(|index| *index *= stride);
        }
        Self { offsets: tables }
    }
}

impl Move for Tables {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if !output.is_empty() {
            pick(&self.offsets, 0, inputs[0], output);
        }
        Ok(())
    }
}

fn pick<T: Copy>(offsets: &[Vec<usize>], start: usize, from: &[T], to: &mut [T]) {
    match offsets {
        [] => to[0] = from[start],
        [last] => last.iter().zip(to).for_each(|(offset, x)| *x = from[start + offset]),
        [first, inner @ ..] => {
            let parts = to.chunks_exact_mut(to.len() / first.len());
            for (offset, part) in first.iter().zip(parts) {
                pick(inner, start + offset, from, part);
            }
        }
    }
}
