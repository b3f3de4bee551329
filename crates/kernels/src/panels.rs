//! `PanelsView`: the right matrix of a product, in the order in which the kernels read it.
//!
//! A panel is `WIDTH` wide and holds its columns row by row; panels follow each other. The last
//! one is filled up with zeros.

use std::ops::Range;

use super::Matrix;

/// A packed matrix in somebody's memory.
#[derive(Debug, Clone, Copy)]
pub struct PanelsView<'a> {
    pub(super) data: &'a [f32],
    /// The rows of the matrix: the inner dimension of the product.
    pub rows: usize,
    /// The columns of the matrix.
    pub columns: usize,
}

/// The columns in a panel: a line of the cache, one or two vectors. It is the same for all
/// instruction sets, so that each can work on what another packed.
pub const WIDTH: usize = 16;

impl<'a> PanelsView<'a> {
    /// The floats that a matrix of this size takes.
    pub fn len(rows: usize, columns: usize) -> usize {
        columns.next_multiple_of(WIDTH) * rows
    }

    /// Some of its columns, if they start and end with a panel.
    pub fn columns(&self, columns: Range<usize>) -> Option<Self> {
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
    pub fn unpack(&self, columns: Range<usize>, out: &mut [f32]) {
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
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), Self::len(rows, columns));
        Self { data, rows, columns }
    }

    /// Packs a matrix into the front of `memory`.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn pack(matrix: Matrix<'_, f32>, memory: &'a mut [f32]) -> Self {
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
    use crate::Form;

    /// Memory for a packed matrix of this size; what it holds is overwritten.
    fn memory(rows: usize, columns: usize) -> Vec<f32> {
        vec![f32::NAN; PanelsView::len(rows, columns)]
    }

    #[test]
    fn columns_lie_side_by_side_and_the_rest_is_zero() {
        let (rows, columns) = (3, WIDTH + 2);
        let plain: Vec<f32> = (0..rows * columns).map(|i| i as f32 + 1.).collect();
        let mut turned = vec![0.; plain.len()];
        for (i, x) in plain.iter().enumerate() {
            turned[i % columns * rows + i / columns] = *x;
        }
        let (mut memory_one, mut memory_two) = (memory(rows, columns), memory(rows, columns));
        let one = Matrix::new(&plain, (rows, columns), Form::Plain);
        let one = PanelsView::pack(one, &mut memory_one);
        let two = Matrix::new(&turned, (columns, rows), Form::Transposed);
        let two = PanelsView::pack(two, &mut memory_two);
        assert_eq!(one.data, two.data);
        assert_eq!(one.data[WIDTH], plain[columns]);
        let second = &one.data[rows * WIDTH..];
        assert_eq!(second[..3], [plain[WIDTH], plain[WIDTH + 1], 0.]);
    }

    #[test]
    fn some_columns_are_taken_out() {
        let (rows, columns) = (2, 2 * WIDTH + 3);
        let plain: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let mut memory = memory(rows, columns);
        let matrix = Matrix::new(&plain, (rows, columns), Form::Plain);
        let (view, first) = (PanelsView::pack(matrix, &mut memory), WIDTH);
        let mut column = [0.; 2];
        view.columns(first..columns).unwrap().unpack(0..1, &mut column);
        assert_eq!(column, [16., 51.]);
        let mut two = [0.; 4];
        view.unpack(first + 1..first + 3, &mut two);
        assert_eq!(two, [17., 18., 52., 53.]);
        assert!(view.columns(1..columns).is_none());
    }
}
