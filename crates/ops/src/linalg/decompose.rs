//! Decompositions of one matrix, stored row by row.

use super::square::Field;
use crate::cancel::pace;
use crate::error::Result;

/// Rows of a matrix in the order in which elimination takes them, with the factors below the
/// diagonal.
pub(super) struct Lu<'a, F> {
    n: usize,
    data: &'a mut [F],
    rows: &'a mut [usize],
    /// `true` if an odd number of rows changed places.
    odd: bool,
}

impl<'a, F: Field> Lu<'a, F> {
    /// Eliminates in the matrix with the largest pivot of each column, leaving zeros on the
    /// diagonal of a singular one. `rows` has room for a number each.
    pub(super) fn new(matrix: &'a mut [F], rows: &'a mut [usize]) -> Result<Self> {
        let n = rows.len();
        rows.iter_mut().enumerate().for_each(|(i, row)| *row = i);
        let lu = Self { n, data: matrix, rows, odd: false };
        lu.eliminated()
    }

    fn eliminated(mut self) -> Result<Self> {
        let n = self.n;
        for column in 0..n {
            let size = |row: usize| self.data[row * n + column].size();
            let best = (column..n).max_by(|a, b| size(*a).total_cmp(&size(*b))).unwrap_or(column);
            if size(best) == 0. {
                continue;
            }
            if best != column {
                (0..n).for_each(|i| self.data.swap(best * n + i, column * n + i));
                self.rows.swap(best, column);
                self.odd = !self.odd;
            }
            for row in column + 1..n {
                pace(n - column)?;
                let factor = self.data[row * n + column] / self.data[column * n + column];
                self.data[row * n + column] = factor;
                for i in column + 1..n {
                    let above = self.data[column * n + i];
                    self.data[row * n + i] = self.data[row * n + i] - factor * above;
                }
            }
        }
        Ok(self)
    }

    /// Returns whether the matrix has an inverse.
    pub(super) fn is_regular(&self) -> bool {
        (0..self.n).all(|i| self.data[i * self.n + i].size() > 0.)
    }

    /// The product of the pivots, with its sign.
    pub(super) fn determinant(&self) -> F {
        let n = self.n;
        let product = (0..n).fold(F::one(), |product, i| product * self.data[i * n + i]);
        if self.odd { -product } else { product }
    }

    /// Solves for as many right sides as `x` has room for, stored row by row; `right` gives their
    /// elements by row and column.
    pub(super) fn solve(&self, right: impl Fn(usize, usize) -> F, x: &mut [F]) -> Result<()> {
        let n = self.n;
        let columns = x.len().checked_div(n).unwrap_or(0);
        for (i, x) in x.iter_mut().enumerate() {
            *x = right(self.rows[i / columns], i % columns);
        }
        for row in 0..n {
            for k in 0..row {
                pace(columns)?;
                let factor = self.data[row * n + k];
                subtract(x, (row, k), factor, columns);
            }
        }
        for row in (0..n).rev() {
            for k in row + 1..n {
                pace(columns)?;
                let factor = self.data[row * n + k];
                subtract(x, (row, k), factor, columns);
            }
            let pivot = self.data[row * n + row];
            x[row * columns..][..columns].iter_mut().for_each(|x| *x = *x / pivot);
        }
        Ok(())
    }
}

/// Subtracts `factor` times row `k` from row `row`.
fn subtract<F: Field>(x: &mut [F], (row, k): (usize, usize), factor: F, columns: usize) {
    for c in 0..columns {
        x[row * columns + c] = x[row * columns + c] - factor * x[k * columns + c];
    }
}

/// Writes the lower triangle whose product with its adjoint is the matrix, of which only the lower
/// triangle is read. Whether the matrix is positive definite.
pub(super) fn cholesky<F: Field>(matrix: &[F], n: usize, lower: &mut [F]) -> Result<bool> {
    lower.fill(F::zero());
    for row in 0..n {
        for column in 0..=row {
            pace(column)?;
            let mut sum = matrix[row * n + column];
            for k in 0..column {
                sum = sum - lower[row * n + k] * lower[column * n + k].conjugate();
            }
            if row > column {
                lower[row * n + column] = sum / lower[column * n + column];
                continue;
            }
            // Of the diagonal only what is real counts; NaN is not above zero either.
            let square = sum.real_part();
            if square.is_nan() || square <= 0. {
                return Ok(false);
            }
            lower[row * n + row] = F::real(square.sqrt());
        }
    }
    Ok(true)
}

/// The triangle of a matrix that counts, and its meaning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triangle {
    pub(super) lower: bool,
    pub(super) adjoint: bool,
}

/// Solves for the right sides in `x`, in their place, with a triangle of the matrix.
pub(super) fn solve_triangle<F: Field>(
    triangle: Triangle,
    matrix: &[F],
    n: usize,
    x: &mut [F],
) -> Result<()> {
    let columns = x.len().checked_div(n).unwrap_or(0);
    let at = |row: usize, column: usize| match triangle.adjoint {
        true => matrix[column * n + row].conjugate(),
        false => matrix[row * n + column],
    };
    let forward = triangle.lower != triangle.adjoint;
    for i in 0..n {
        let row = if forward { i } else { n - 1 - i };
        for j in 0..i {
            pace(columns)?;
            let k = if forward { j } else { n - 1 - j };
            subtract(x, (row, k), at(row, k), columns);
        }
        // As in TensorFlow, a singular triangle gives infinities.
        let pivot = at(row, row);
        x[row * columns..][..columns].iter_mut().for_each(|x| *x = *x / pivot);
    }
    Ok(())
}
