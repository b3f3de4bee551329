//! Two operands that meet: a stack of matrix products.

use pool::Pool;
use tensor::Handle;

use super::equation::Equation;
use super::layout::{Operand, contiguous, walk};
use crate::linalg::product::product;
use crate::linalg::{Form, Matrix, Scalar};
use crate::op::Packed;
use crate::prelude::*;
use crate::simd::{Panels, PanelsView, Stacked, multiply_stack};

/// The dimensions of two operands and their output by the part they play. Each has a size and the
/// strides of two of the three tensors.
#[derive(Debug, Default)]
pub(super) struct Sides {
    /// In all three: left, right and output.
    stack: Vec<(usize, usize, usize, usize)>,
    /// In the left and the output.
    rows: Vec<(usize, usize, usize)>,
    /// In the left and the right.
    inner: Vec<(usize, usize, usize)>,
    /// In the right and the output.
    columns: Vec<(usize, usize, usize)>,
}

impl Sides {
    pub(super) fn new(a: &Operand, b: &Operand, output: &Operand) -> Self {
        let mut sides = Self::default();
        for dim in &output.dims {
            let (size, out) = (dim.size, dim.stride);
            let strides = (a.stride(dim.label, size), b.stride(dim.label, size));
            match (a.has(dim.label), b.has(dim.label)) {
                (true, false) => sides.rows.push((size, strides.0, out)),
                (false, true) => sides.columns.push((size, strides.1, out)),
                _ => sides.stack.push((size, strides.0, strides.1, out)),
            }
        }
        for dim in a.dims.iter().filter(|dim| b.has(dim.label) && !output.has(dim.label)) {
            let size = b.dims.iter().find(|d| d.label == dim.label).map_or(1, |d| d.size);
            let size = size.max(dim.size);
            sides.inner.push((size, a.stride(dim.label, size), b.stride(dim.label, size)));
        }
        sides
    }

    /// Sizes and strides of the left operand: stack, rows, inner.
    pub(super) fn left(&self) -> Vec<(usize, usize)> {
        let stack = self.stack.iter().map(|dim| (dim.0, dim.1));
        let rows = self.rows.iter().map(|dim| (dim.0, dim.1));
        stack.chain(rows).chain(self.inner.iter().map(|dim| (dim.0, dim.1))).collect()
    }

    /// Sizes and strides of the right operand: stack, inner, columns.
    pub(super) fn right(&self) -> Vec<(usize, usize)> {
        let stack = self.stack.iter().map(|dim| (dim.0, dim.2));
        let inner = self.inner.iter().map(|dim| (dim.0, dim.2));
        stack.chain(inner).chain(self.columns.iter().map(|dim| (dim.0, dim.1))).collect()
    }

    /// The number of products, and of their rows, inner places and columns.
    fn sizes(&self) -> (usize, usize, usize, usize) {
        let size = |dims: &[(usize, usize, usize)]| dims.iter().map(|dim| dim.0).product();
        let stack = self.stack.iter().map(|dim| dim.0).product();
        (stack, size(&self.rows), size(&self.inner), size(&self.columns))
    }

    /// The products of operands in the order of `left` and `right`, one after the other.
    pub(super) fn product<T: Scalar>(&self, left: &[T], right: &[T]) -> Vec<T> {
        let (stack, rows, inner, columns) = self.sizes();
        let mut out = vec![T::ZERO; stack * rows * columns];
        for i in 0..stack {
            let a = &left[i * rows * inner..][..rows * inner];
            let b = &right[i * inner * columns..][..inner * columns];
            let a = Matrix::new(a, (rows, inner), Form::Plain);
            let b = Matrix::new(b, (inner, columns), Form::Plain);
            product(a, b, &mut out[i * rows * columns..][..rows * columns]);
        }
        out
    }

    /// Copies products that lie one after the other to their places in the output.
    pub(super) fn spread<T: Copy>(&self, products: &[T], out: &mut [T]) {
        let stack = self.stack.iter().map(|dim| (dim.0, 0, dim.3));
        let rows = self.rows.iter().map(|dim| (dim.0, 0, dim.2));
        let columns = self.columns.iter().map(|dim| (dim.0, 0, dim.2));
        let dims: Vec<_> = stack.chain(rows).chain(columns).collect();
        let mut from = products.iter();
        walk(&dims, (0, 0), &mut |(_, to)| {
            if let Some(x) = from.next() {
                out[to] = *x;
            }
        });
    }
}

/// Dimensions of one tensor as one, if neighbours along each are as far apart as the next reaches.
fn merged(dims: impl DoubleEndedIterator<Item = (usize, usize)>) -> Option<(usize, usize)> {
    let mut dims = dims.filter(|dim| dim.0 != 1).rev();
    let Some((mut size, stride)) = dims.next() else { return Some((1, 0)) };
    for dim in dims {
        if dim.1 != size * stride {
            return None;
        }
        size *= dim.0;
    }
    Some((size, stride))
}

/// A constant right operand, packed product by product.
pub(super) struct PackedOperand {
    /// The shape of the tensor that was packed.
    pub(super) shape: Shape,
    panels: Vec<Panels>,
}

impl PackedOperand {
    /// Packs the second input of an equation without an ellipsis; `None` if its order depends on
    /// the first.
    pub(super) fn pack(equation: &Equation, weight: &Tensor) -> Result<Option<Packed>> {
        let Some((left, right, output)) = equation.letters() else { return Ok(None) };
        if weight.shape().rank() != right.len() {
            return Ok(None);
        }
        let b = Operand::new(&right, weight.shape());
        let alone = b.dims.iter().any(|d| !left.contains(&d.label) && !output.contains(&d.label));
        let mut names = output.clone();
        names.sort_unstable();
        if alone || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(None);
        }
        // Only names and order count on the left and in the output: any sizes and strides will do.
        let size = |label| b.dims.iter().find(|d| d.label == label).map_or(1, |d| d.size);
        let like = |labels: &[u32]| {
            Operand::new(labels, &labels.iter().map(|label| size(*label)).collect())
        };
        let sides = Sides::new(&like(&left), &b, &like(&output));
        let (stack, _, inner, columns) = sides.sizes();
        let data = contiguous(weight.as_slice::<f32>(), &sides.right());
        let panels: Vec<Panels> = (0..stack)
            .map(|i| {
                let one = &data[i * inner * columns..][..inner * columns];
                Panels::new(Matrix::new(one, (inner, columns), Form::Plain))
            })
            .collect::<Result<_>>()?;
        let n_bytes = panels.iter().map(Panels::n_bytes).sum();
        let object = Handle::new(Self { shape: weight.shape().clone(), panels });
        Ok(Some(Packed { object, n_bytes }))
    }

    pub(super) fn view(&self) -> Option<&[Panels]> {
        Some(&self.panels)
    }
}

/// Writes the products of `left` with the right operand, packed or not.
pub(super) fn contract(
    pool: &Pool,
    sides: &Sides,
    left: &[f32],
    (packed, right): (Option<&[Panels]>, &[f32]),
    out: &mut [f32],
) {
    let (stack, rows, inner, columns) = sides.sizes();
    if out.is_empty() {
        return;
    }
    let mut memory = Vec::new();
    let len = PanelsView::len(inner, columns);
    if packed.is_none() {
        memory.resize(len * stack, 0.);
        pack_all(pool, sides, right, &mut memory);
    }
    let panels = |i: usize| match packed {
        Some(packed) => packed[i].view(),
        None => PanelsView::new(&memory[i * len..][..len], inner, columns),
    };
    // Rows and columns as they lie, if they do so in one stride each; else a copy.
    let direct = merged(sides.inner.iter().map(|dim| (dim.0, dim.1)))
        .filter(|dim| dim.0 == 1 || dim.1 == 1)
        .and(merged(sides.rows.iter().map(|dim| (dim.0, dim.1))));
    let straight = merged(sides.columns.iter().map(|dim| (dim.0, dim.2)))
        .filter(|dim| dim.0 == 1 || dim.1 == 1)
        .and(merged(sides.rows.iter().map(|dim| (dim.0, dim.2))));
    let copy;
    let (left, left_row) = match direct {
        Some((_, stride)) => (left, stride),
        None => {
            copy = contiguous(left, &sides.left());
            (&copy[..], inner)
        }
    };
    let numbers = strides_of(sides.stack.iter().map(|dim| dim.0));
    let mut dims: Vec<_> = sides
        .stack
        .iter()
        .zip(numbers)
        .map(|(dim, n)| {
            let left = if direct.is_some() { dim.1 } else { n * rows * inner };
            (dim.0, left, n, if straight.is_some() { dim.3 } else { n * rows * columns })
        })
        .collect();
    dims.retain(|dim| dim.0 != 1);
    let out_row = straight.map_or(columns, |(_, stride)| stride);
    let stacked = Stacked { dims: &dims, rows, inner, columns, strides: (left_row, out_row) };
    if straight.is_some() {
        return multiply_stack(pool, &stacked, left, &panels, out);
    }
    let mut products = vec![0.; out.len()];
    multiply_stack(pool, &stacked, left, &panels, &mut products);
    sides.spread(&products, out);
}

/// Packs the right operand of each product into its part of `memory`.
fn pack_all(pool: &Pool, sides: &Sides, right: &[f32], memory: &mut [f32]) {
    let (_, _, inner, columns) = sides.sizes();
    let len = PanelsView::len(inner, columns);
    if len == 0 {
        return;
    }
    let one_inner = merged(sides.inner.iter().map(|dim| (dim.0, dim.2)));
    let one_column = merged(sides.columns.iter().map(|dim| (dim.0, dim.1)));
    let stack: Vec<_> = sides.stack.iter().map(|dim| (dim.0, dim.2, 0)).collect();
    let mut starts = Vec::new();
    walk(&stack, (0, 0), &mut |(at, _)| starts.push(at));
    if let (Some((_, row)), Some((_, column))) = (one_inner, one_column) {
        pool.run_chunks(memory, len, &|i, memory| {
            let matrix = Matrix {
                data: &right[starts[i]..],
                size: (inner, columns),
                strides: (row.max(1), column.max(1)),
                conjugate: false,
            };
            PanelsView::pack(matrix, memory);
        });
        return;
    }
    let copy = contiguous(right, &sides.right());
    pool.run_chunks(memory, len, &|i, memory| {
        let one = &copy[i * inner * columns..][..inner * columns];
        PanelsView::pack(Matrix::new(one, (inner, columns), Form::Plain), memory);
    });
}

/// The strides of dimensions of these sizes in row-major order.
fn strides_of(sizes: impl DoubleEndedIterator<Item = usize>) -> Vec<usize> {
    let mut stride = 1;
    let mut strides: Vec<usize> = sizes
        .rev()
        .map(|size| {
            let own = stride;
            stride *= size;
            own
        })
        .collect();
    strides.reverse();
    strides
}
