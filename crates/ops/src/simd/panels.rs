//! `Panels`: the right matrix of a product, in the order in which the kernels read it.
//!
//! A panel is `WIDTH` wide and holds its columns row by row; panels follow each other. The last
//! one is filled up with zeros.

use std::ops::Range;

use device::Buffer;

use crate::error::{Error, Result};
use crate::linalg::Matrix;

/// A packed matrix of its own.
#[derive(Debug)]
pub(crate) struct Panels {
    data: Buffer,
    rows: usize,
    columns: usize,
}

/// A packed matrix in somebody's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PanelsView<'a> {
    pub(super) data: &'a [f32],
    /// The rows of the matrix: the inner dimension of the product.
    pub(crate) rows: usize,
    /// The columns of the matrix.
    pub(crate) columns: usize,
}

/// The columns in a panel: a line of the cache, one or two vectors. It is the same for all
/// instruction sets, so that each can work on what another packed.
pub(crate) const WIDTH: usize = 16;

impl Panels {
    /// Packs a matrix. Fails without memory.
    pub(crate) fn new(matrix: Matrix<'_, f32>) -> Result<Self> {
        let (rows, columns) = matrix.size;
        let n_bytes = PanelsView::len(rows, columns) * size_of::<f32>();
        let mut data = Buffer::allocate(n_bytes)
            .map_err(|error| Error::ResourceExhausted(error.to_string()))?;
        if !data.is_rehearsed() {
            let bytes = data.bytes_mut().expect("a new buffer has one owner");
            pack(matrix, bytemuck::cast_slice_mut(bytes));
            data = device::shared(data);
        }
        Ok(Self { data, rows, columns })
    }

    /// The bytes that it holds.
    pub(crate) fn n_bytes(&self) -> usize {
        self.data.len()
    }

    /// A view of it.
    pub(crate) fn view(&self) -> PanelsView<'_> {
        let data = bytemuck::cast_slice(self.data.bytes());
        PanelsView { data, rows: self.rows, columns: self.columns }
    }
}

impl<'a> PanelsView<'a> {
    /// The floats that a matrix of this size takes.
    pub(crate) fn len(rows: usize, columns: usize) -> usize {
        columns.next_multiple_of(WIDTH) * rows
    }

    /// Some of its columns, if they start and end with a panel.
    pub(crate) fn columns(&self, columns: Range<usize>) -> Option<Self> {
        let aligned = |at: usize| at.is_multiple_of(WIDTH) || at == self.columns;
        if !aligned(columns.start) || !aligned(columns.end) {
            return None;
        }
        let panels = columns.start / WIDTH..columns.end.div_ceil(WIDTH);
        let step = self.rows * WIDTH;
        let data = &self.data[panels.start * step..panels.end * step];
        Some(Self { data, rows: self.rows, columns: columns.len() })
    }

    /// Writes some of its columns as they were before, row by row.
    ///
    /// # Panics
    /// If `out` is too short.
    pub(crate) fn unpack(&self, columns: Range<usize>, out: &mut [f32]) {
        let at =
            |row: usize, column: usize| (column / WIDTH * self.rows + row) * WIDTH + column % WIDTH;
        let rows = out[..self.rows * columns.len()].chunks_exact_mut(columns.len().max(1));
        for (row, out) in rows.enumerate() {
            let pairs = out.iter_mut().zip(columns.clone());
            pairs.for_each(|(x, column)| *x = self.data[at(row, column)]);
        }
    }

    /// A matrix of this size that was packed before.
    ///
    /// # Panics
    /// If the memory is not just what it takes.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), Self::len(rows, columns));
        Self { data, rows, columns }
    }

    /// Packs a matrix into the front of `memory`.
    ///
    /// # Panics
    /// If it does not fit.
    pub(crate) fn pack(matrix: Matrix<'_, f32>, memory: &'a mut [f32]) -> Self {
        let (rows, columns) = matrix.size;
        let data = &mut memory[..Self::len(rows, columns)];
        pack(matrix, data);
        Self { data, rows, columns }
    }
}

fn pack(matrix: Matrix<'_, f32>, out: &mut [f32]) {
    let (rows, columns) = matrix.size;
    assert_eq!(out.len(), PanelsView::len(rows, columns));
    if rows == 0 {
        return;
    }
    for (i, panel) in out.chunks_exact_mut(rows * WIDTH).enumerate() {
        let first = i * WIDTH;
        let n = WIDTH.min(columns - first);
        if n < WIDTH {
            panel.fill(0.);
        }
        match matrix.strides {
            (step, 1) => {
                for (row, out) in panel.chunks_exact_mut(WIDTH).enumerate() {
                    out[..n].copy_from_slice(&matrix.data[row * step + first..][..n]);
                }
            }
            (row_step, step) => {
                for column in 0..n {
                    let from = matrix.data[(first + column) * step..].iter().step_by(row_step);
                    let to = panel[column..].iter_mut().step_by(WIDTH);
                    to.zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Form;

    #[test]
    fn columns_lie_side_by_side_and_the_rest_is_zero() {
        let (rows, columns) = (3, WIDTH + 2);
        let plain: Vec<f32> = (0..rows * columns).map(|i| i as f32 + 1.).collect();
        let mut turned = vec![0.; plain.len()];
        for (i, x) in plain.iter().enumerate() {
            turned[i % columns * rows + i / columns] = *x;
        }
        let one = Panels::new(Matrix::new(&plain, (rows, columns), Form::Plain)).unwrap();
        let two = Panels::new(Matrix::new(&turned, (columns, rows), Form::Transposed)).unwrap();
        assert_eq!(one.view().data, two.view().data);
        assert_eq!(one.view().data[WIDTH], plain[columns]);
        let second = &one.view().data[rows * WIDTH..];
        assert_eq!(second[..3], [plain[WIDTH], plain[WIDTH + 1], 0.]);
    }

    #[test]
    fn some_columns_are_taken_out() {
        let (rows, columns) = (2, 2 * WIDTH + 3);
        let plain: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let panels = Panels::new(Matrix::new(&plain, (rows, columns), Form::Plain)).unwrap();
        let (view, first) = (panels.view(), WIDTH);
        let mut column = [0.; 2];
        view.columns(first..columns).unwrap().unpack(0..1, &mut column);
        assert_eq!(column, [16., 51.]);
        let mut two = [0.; 4];
        view.unpack(first + 1..first + 3, &mut two);
        assert_eq!(two, [17., 18., 52., 53.]);
        assert!(view.columns(1..columns).is_none());
    }
}
