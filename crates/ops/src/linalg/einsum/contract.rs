//! Two operands that meet: a stack of matrix products.

use kernels::{Form, Matrix, PanelsView, Stacked, multiply_stack};
use pool::Pool;

use super::equation::Equation;
use super::layout::{Operand, contiguous, copy, walk};
use crate::linalg::matmul_kernel::PackedRight;
use crate::linalg::product::product;
use crate::linalg::{Panels, Scalar};
use crate::op::Packed;
use crate::prelude::*;

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

    /// The places of products that lie one after the other in the output.
    fn places(&self) -> Vec<(usize, usize, usize)> {
        let stack = self.stack.iter().map(|dim| (dim.0, 0, dim.3));
        let rows = self.rows.iter().map(|dim| (dim.0, 0, dim.2));
        let columns = self.columns.iter().map(|dim| (dim.0, 0, dim.2));
        stack.chain(rows).chain(columns).collect()
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

/// Packs the second input of an equation without an ellipsis; `None` if its order depends on the
/// first.
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
    let like =
        |labels: &[u32]| Operand::new(labels, &labels.iter().map(|label| size(*label)).collect());
    let sides = Sides::new(&like(&left), &b, &like(&output));
    let (stack, _, inner, columns) = sides.sizes();
    let data = contiguous(weight.as_slice::<f32>(), &sides.right());
    let one = |i: usize| &data[i * inner * columns..][..inner * columns];
    let panels =
        (0..stack).map(|i| Panels::new(Matrix::new(one(i), (inner, columns), Form::Plain)));
    Ok(Some(PackedRight::of(panels.collect::<Result<_>>()?)))
}

/// The product of two operands of given sizes, multiplied as they lie, as far as they can be.
pub(super) struct Contraction {
    stack: usize,
    rows: usize,
    inner: usize,
    columns: usize,
    /// The distance between rows in the left operand and in the output, if they lie in one stride
    /// and their elements side by side; else they are copied.
    direct: Option<usize>,
    straight: Option<usize>,
    /// The stack: see `Stacked`.
    dims: Vec<(usize, usize, usize, usize)>,
    /// The places of the left operand, of the right one, and of the output, one after the other.
    left: Vec<(usize, usize, usize)>,
    right: Vec<(usize, usize, usize)>,
    output: Vec<(usize, usize, usize)>,
    /// The stack in the right operand, and the strides of its rows and columns, if there is one
    /// each.
    right_stack: Vec<(usize, usize)>,
    right_strides: Option<(usize, usize)>,
}

/// The right operand of a contraction.
#[derive(Clone, Copy)]
pub(super) enum EinsumRight<'a> {
    /// A constant, as the panels of each of its matrices.
    Packed(&'a [Panels]),
    Plain(&'a [f32]),
}

impl Contraction {
    pub(super) fn new(sides: &Sides) -> Self {
        let (stack, rows, inner, columns) = sides.sizes();
        let direct = merged(sides.inner.iter().map(|dim| (dim.0, dim.1)))
            .filter(|dim| dim.0 == 1 || dim.1 == 1)
            .and(merged(sides.rows.iter().map(|dim| (dim.0, dim.1))))
            .map(|dim| dim.1);
        let straight = merged(sides.columns.iter().map(|dim| (dim.0, dim.2)))
            .filter(|dim| dim.0 == 1 || dim.1 == 1)
            .and(merged(sides.rows.iter().map(|dim| (dim.0, dim.2))))
            .map(|dim| dim.1);
        let numbers = strides_of(sides.stack.iter().map(|dim| dim.0));
        let place = |(dim, n): (&(usize, usize, usize, usize), usize)| {
            let left = if direct.is_some() { dim.1 } else { n * rows * inner };
            (dim.0, left, n, if straight.is_some() { dim.3 } else { n * rows * columns })
        };
        let mut dims: Vec<_> = sides.stack.iter().zip(numbers).map(place).collect();
        dims.retain(|dim| dim.0 != 1);
        let from = |dims: Vec<(usize, usize)>| dims.into_iter().map(|dim| (dim.0, dim.1, 0));
        let one_inner = merged(sides.inner.iter().map(|dim| (dim.0, dim.2)));
        let one_column = merged(sides.columns.iter().map(|dim| (dim.0, dim.1)));
        let strides = one_inner.zip(one_column).map(|(row, column)| (row.1, column.1));
        Self {
            stack,
            rows,
            inner,
            columns,
            direct,
            straight,
            dims,
            left: from(sides.left()).collect(),
            right: from(sides.right()).collect(),
            output: sides.places(),
            right_stack: sides.stack.iter().map(|dim| (dim.0, dim.2)).collect(),
            right_strides: strides,
        }
    }

    /// The floats of scratch memory that `run` wants.
    pub(super) fn scratch_len(&self, is_packed: bool) -> usize {
        let (panels, right) = if is_packed { (0, 0) } else { self.right_lens() };
        panels + right + self.left_len() + self.output_len()
    }

    /// The floats of the right operand's panels, and of a copy of it.
    fn right_lens(&self) -> (usize, usize) {
        let panels = PanelsView::len(self.inner, self.columns) * self.stack;
        let copied = self.right_strides.is_none();
        (panels, if copied { self.stack * self.inner * self.columns } else { 0 })
    }

    fn left_len(&self) -> usize {
        if self.direct.is_some() { 0 } else { self.stack * self.rows * self.inner }
    }

    fn output_len(&self) -> usize {
        if self.straight.is_some() { 0 } else { self.stack * self.rows * self.columns }
    }

    /// Writes the products of `left` with the right operand.
    pub(super) fn run(
        &self,
        pool: &Pool,
        left: &[f32],
        right: EinsumRight<'_>,
        (scratch, out): (&mut [f32], &mut [f32]),
    ) {
        if out.is_empty() {
            return;
        }
        let (panels_len, right_len) = match right {
            EinsumRight::Packed(_) => (0, 0),
            EinsumRight::Plain(_) => self.right_lens(),
        };
        let (memory, scratch) = scratch.split_at_mut(panels_len);
        let (right_copy, scratch) = scratch.split_at_mut(right_len);
        let (left_copy, scratch) = scratch.split_at_mut(self.left_len());
        let products = &mut scratch[..self.output_len()];
        if let EinsumRight::Plain(right) = right {
            self.pack_all(pool, right, right_copy, memory);
        }
        let len = PanelsView::len(self.inner, self.columns);
        let memory = &*memory;
        let panels = |i: usize| match right {
            EinsumRight::Packed(packed) => packed[i].view(),
            EinsumRight::Plain(_) => {
                PanelsView::new(&memory[i * len..][..len], self.inner, self.columns)
            }
        };
        let (left, left_row) = match self.direct {
            Some(stride) => (left, stride),
            None => {
                copy(left, &self.left, left_copy);
                (&*left_copy, self.inner)
            }
        };
        let (rows, inner, columns) = (self.rows, self.inner, self.columns);
        let strides = (left_row, self.straight.unwrap_or(columns));
        let stacked = Stacked { dims: &self.dims, rows, inner, columns, strides };
        if self.straight.is_some() {
            return multiply_stack(pool, &stacked, left, &panels, out);
        }
        multiply_stack(pool, &stacked, left, &panels, products);
        spread(products, &self.output, out);
    }

    /// The bytes of scratch memory that `run_plain` wants for elements of so many bytes.
    pub(super) fn plain_bytes(&self, size: usize) -> usize {
        let Self { stack, rows, inner, columns, .. } = self;
        let matrices = [rows * inner, inner * columns, rows * columns];
        matrices.map(|len| Scratch::bytes_of::<u8>(stack * len * size)).iter().sum()
    }

    /// Writes the products of any elements to their places in the output.
    pub(super) fn run_plain<T: Scalar>(
        &self,
        (left, right): (&[T], &[T]),
        scratch: &mut Scratch<'_>,
        out: &mut [T],
    ) -> Result<()> {
        let Self { stack, rows, inner, columns, .. } = *self;
        let mut left_copy = scratch.part(stack * rows * inner)?;
        copy(left, &self.left, &mut left_copy);
        let mut right_copy = scratch.part(stack * inner * columns)?;
        copy(right, &self.right, &mut right_copy);
        let mut products = scratch.part(stack * rows * columns)?;
        for i in 0..stack {
            let a = &left_copy[i * rows * inner..][..rows * inner];
            let b = &right_copy[i * inner * columns..][..inner * columns];
            let a = Matrix::new(a, (rows, inner), Form::Plain);
            let b = Matrix::new(b, (inner, columns), Form::Plain);
            product(a, b, &mut products[i * rows * columns..][..rows * columns]);
        }
        spread(&products, &self.output, out);
        Ok(())
    }

    /// Packs the right operand of each product into its part of `memory`.
    fn pack_all(&self, pool: &Pool, right: &[f32], copied: &mut [f32], memory: &mut [f32]) {
        let (inner, columns) = (self.inner, self.columns);
        let len = PanelsView::len(inner, columns);
        if len == 0 {
            return;
        }
        if let Some((row, column)) = self.right_strides {
            pool.run_chunks(memory, len, &|i, memory| {
                let matrix = Matrix {
                    data: &right[self.right_start(i)..],
                    size: (inner, columns),
                    strides: (row.max(1), column.max(1)),
                    conjugate: false,
                };
                PanelsView::pack(matrix, memory);
            });
            return;
        }
        copy(right, &self.right, copied);
        let copied = &*copied;
        pool.run_chunks(memory, len, &|i, memory| {
            let one = &copied[i * inner * columns..][..inner * columns];
            PanelsView::pack(Matrix::new(one, (inner, columns), Form::Plain), memory);
        });
    }

    /// Returns the place where the right side of product number `number` starts.
    fn right_start(&self, number: usize) -> usize {
        let (mut rest, mut start) = (number, 0);
        for (size, stride) in self.right_stack.iter().rev() {
            start += rest % size * stride;
            rest /= size;
        }
        start
    }
}

/// Copies products that lie one after the other to their places.
fn spread<T: Copy>(products: &[T], places: &[(usize, usize, usize)], out: &mut [T]) {
    let mut from = products.iter();
    walk(places, (0, 0), &mut |(_, to)| {
        if let Some(x) = from.next() {
            out[to] = *x;
        }
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
