//! Decompositions of one matrix, stored row by row.

use super::square::Field;

/// Rows of a matrix in the order in which elimination takes them, with the factors below the
/// diagonal.
pub(super) struct Lu<F> {
    n: usize,
    data: Vec<F>,
    rows: Vec<usize>,
    /// Whether an odd number of rows changed places.
    odd: bool,
}

impl<F: Field> Lu<F> {
    /// Eliminates with the largest pivot of each column; `None` if the matrix is singular.
    pub(super) fn new(matrix: &[F], n: usize) -> Option<Self> {
        let lu = Self::with_zeros(matrix, n);
        let regular = (0..n).all(|i| lu.data[i * n + i].size() > 0.);
        regular.then_some(lu)
    }

    /// The same, leaving zeros on the diagonal of a singular matrix.
    fn with_zeros(matrix: &[F], n: usize) -> Self {
        let mut lu = Self { n, data: matrix.to_vec(), rows: (0..n).collect(), odd: false };
        for column in 0..n {
            let size = |row: usize| lu.data[row * n + column].size();
            let best = (column..n).max_by(|a, b| size(*a).total_cmp(&size(*b))).unwrap_or(column);
            if size(best) == 0. {
                continue;
            }
            if best != column {
                (0..n).for_each(|i| lu.data.swap(best * n + i, column * n + i));
                lu.rows.swap(best, column);
                lu.odd = !lu.odd;
            }
            for row in column + 1..n {
                let factor = lu.data[row * n + column] / lu.data[column * n + column];
                lu.data[row * n + column] = factor;
                for i in column + 1..n {
                    let above = lu.data[column * n + i];
                    lu.data[row * n + i] = lu.data[row * n + i] - factor * above;
                }
            }
        }
        lu
    }

    /// The product of the pivots, with its sign.
    pub(super) fn determinant(matrix: &[F], n: usize) -> F {
        let lu = Self::with_zeros(matrix, n);
        let product = (0..n).fold(F::one(), |product, i| product * lu.data[i * n + i]);
        if lu.odd { -product } else { product }
    }

    /// Solves for `columns` right sides, stored row by row.
    pub(super) fn solve(&self, right: &[F], columns: usize) -> Vec<F> {
        let n = self.n;
        let mut x: Vec<F> = self
            .rows
            .iter()
            .flat_map(|row| right[row * columns..][..columns].iter().copied())
            .collect();
        for row in 0..n {
            for k in 0..row {
                let factor = self.data[row * n + k];
                subtract(&mut x, (row, k), factor, columns);
            }
        }
        for row in (0..n).rev() {
            for k in row + 1..n {
                let factor = self.data[row * n + k];
                subtract(&mut x, (row, k), factor, columns);
            }
            let pivot = self.data[row * n + row];
            x[row * columns..][..columns].iter_mut().for_each(|x| *x = *x / pivot);
        }
        x
    }
}

/// Subtracts `factor` times row `k` from row `row`.
fn subtract<F: Field>(x: &mut [F], (row, k): (usize, usize), factor: F, columns: usize) {
    for c in 0..columns {
        x[row * columns + c] = x[row * columns + c] - factor * x[k * columns + c];
    }
}

/// The lower triangle whose product with its adjoint is the matrix, of which only the lower
/// triangle is read; `None` if the matrix is not positive definite.
pub(super) fn cholesky<F: Field>(matrix: &[F], n: usize) -> Option<Vec<F>> {
    let mut lower = vec![F::zero(); n * n];
    for row in 0..n {
        for column in 0..=row {
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
                return None;
            }
            lower[row * n + row] = F::real(square.sqrt());
        }
    }
    Some(lower)
}

/// Which triangle of a matrix counts, and how it is meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triangle {
    pub(super) lower: bool,
    pub(super) adjoint: bool,
}

/// Solves for `columns` right sides with a triangle of the matrix.
pub(super) fn solve_triangle<F: Field>(
    triangle: Triangle,
    matrix: &[F],
    n: usize,
    (right, columns): (&[F], usize),
) -> Vec<F> {
    let at = |row: usize, column: usize| match triangle.adjoint {
        true => matrix[column * n + row].conjugate(),
        false => matrix[row * n + column],
    };
    let mut x = right.to_vec();
    let forward = triangle.lower != triangle.adjoint;
    for i in 0..n {
        let row = if forward { i } else { n - 1 - i };
        for j in 0..i {
            let k = if forward { j } else { n - 1 - j };
            subtract(&mut x, (row, k), at(row, k), columns);
        }
        // As in TensorFlow, a singular triangle gives infinities.
        let pivot = at(row, row);
        x[row * columns..][..columns].iter_mut().for_each(|x| *x = *x / pivot);
    }
    x
}
