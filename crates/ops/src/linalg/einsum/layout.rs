//! `Operand`: a tensor as named dimensions, each with a size and a stride.

use super::equation::Label;
use crate::linalg::Scalar;
use crate::prelude::*;

/// One named dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) label: Label,
    pub(super) size: usize,
    pub(super) stride: usize,
}

/// A tensor as named dimensions, each name once: a repeated one is a diagonal.
#[derive(Debug, Clone, Default)]
pub(super) struct Operand {
    pub(super) dims: Vec<Axis>,
}

impl Operand {
    /// A tensor stored row by row whose dimensions have these names.
    pub(super) fn new(labels: &[Label], shape: &Shape) -> Self {
        let mut dims: Vec<Axis> = Vec::new();
        for ((label, size), stride) in labels.iter().zip(shape.iter()).zip(shape.strides()) {
            match dims.iter_mut().find(|dim| dim.label == *label) {
                Some(dim) => dim.stride += stride,
                None => dims.push(Axis { label: *label, size: *size, stride }),
            }
        }
        Self { dims }
    }

    /// A new tensor stored row by row with the names and sizes of `dims`.
    pub(super) fn packed(dims: &[Axis]) -> Self {
        let mut dims = dims.to_vec();
        let mut stride = 1;
        for dim in dims.iter_mut().rev() {
            dim.stride = stride;
            stride *= dim.size;
        }
        Self { dims }
    }

    pub(super) fn n_elements(&self) -> usize {
        self.dims.iter().map(|dim| dim.size).product()
    }

    pub(super) fn has(&self, label: Label) -> bool {
        self.dims.iter().any(|dim| dim.label == label)
    }

    /// Returns the distance between neighbours along `label` when it has `size` places: 0 where it
    /// is broadcast, or not there.
    pub(super) fn stride(&self, label: Label, size: usize) -> usize {
        let dim = self.dims.iter().find(|dim| dim.label == label);
        dim.filter(|dim| dim.size == size).map_or(0, |dim| dim.stride)
    }
}

/// Sizes, and how far apart neighbours are in two tensors.
pub(super) type Steps = Vec<(usize, usize, usize)>;

/// The way from each element of `from` to its place in `to`, which may lack some of the names.
pub(super) fn sum_steps(from: &Operand, to: &Operand) -> Steps {
    let mut dims = Steps::new();
    let all = to.dims.iter().chain(from.dims.iter().filter(|dim| !to.has(dim.label)));
    for dim in all {
        let size = from.dims.iter().find(|d| d.label == dim.label).map_or(1, |d| d.size);
        let size = if to.has(dim.label) { dim.size } else { size };
        dims.push((size, from.stride(dim.label, size), to.stride(dim.label, size)));
    }
    dims
}

/// Adds each element to its place, and so sums over the names that the output lacks.
pub(super) fn sum<T: Scalar>(steps: &Steps, data: &[T], out: &mut [T]) {
    walk(steps, (0, 0), &mut |(from, to)| out[to] = out[to].plus(data[from]));
}

/// The elements at these places, one after the other.
pub(super) fn contiguous<T: Copy>(data: &[T], dims: &[(usize, usize)]) -> Vec<T> {
    let dims: Vec<_> = dims.iter().map(|(size, stride)| (*size, *stride, 0)).collect();
    let mut out = Vec::with_capacity(dims.iter().map(|dim| dim.0).product());
    walk(&dims, (0, 0), &mut |(from, _)| out.push(data[from]));
    out
}

/// Writes the elements at these places, one after the other.
pub(super) fn copy<T: Copy>(data: &[T], dims: &[(usize, usize, usize)], out: &mut [T]) {
    let mut out = out.iter_mut();
    walk(dims, (0, 0), &mut |(from, _)| {
        if let Some(out) = out.next() {
            *out = data[from];
        }
    });
}

/// Calls `visit` with both offsets of each place, the last dimension fastest.
pub(super) fn walk(
    dims: &[(usize, usize, usize)],
    at: (usize, usize),
    visit: &mut impl FnMut((usize, usize)),
) {
    match dims {
        [] => visit(at),
        [(size, from, to)] => {
            (0..*size).for_each(|i| visit((at.0 + i * from, at.1 + i * to)));
        }
        [(size, from, to), rest @ ..] => {
            (0..*size).for_each(|i| walk(rest, (at.0 + i * from, at.1 + i * to), visit));
        }
    }
}
