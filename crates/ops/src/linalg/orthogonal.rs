//! Decompositions of one matrix with orthonormal factors.

use super::square::Field;
use crate::cancel::pace;
use crate::error::Result;

/// A matrix, row by row.
#[derive(Debug)]
pub(super) struct Grid<'a, F> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) data: &'a mut [F],
}

impl<F: Field> Grid<'_, F> {
    /// Puts ones on the diagonal and zeros elsewhere.
    fn make_identity(&mut self) {
        for (i, value) in self.data.iter_mut().enumerate() {
            *value = if i / self.columns == i % self.columns { F::one() } else { F::zero() };
        }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> F {
        self.data[row * self.columns + column]
    }

    fn set(&mut self, row: usize, column: usize, value: F) {
        self.data[row * self.columns + column] = value;
    }

    /// The sum of the conjugates of one column times another.
    fn inner(&self, a: usize, b: usize) -> F {
        let terms = (0..self.rows).map(|row| self.at(row, a).conjugate() * self.at(row, b));
        terms.fold(F::zero(), |sum, term| sum + term)
    }

    fn norm(&self, column: usize) -> f64 {
        (0..self.rows).map(|row| self.at(row, column).size().powi(2)).sum::<f64>().sqrt()
    }

    /// Subtracts `scale` times the column `tail`, from row `first` on, times its product with each
    /// column from `from` on.
    fn reflect(&mut self, first: usize, tail: &[F], scale: F, from: usize) -> Result<()> {
        for column in from..self.columns {
            pace(2 * tail.len())?;
            let terms = tail.iter().enumerate();
            let product = terms
                .map(|(i, v)| v.conjugate() * self.at(first + i, column))
                .fold(F::zero(), |sum, term| sum + term);
            for (i, v) in tail.iter().enumerate() {
                let value = self.at(first + i, column) - scale * *v * product;
                self.set(first + i, column, value);
            }
        }
        Ok(())
    }
}

/// Householder's factors of `matrix`: the upper triangle is left in it, and `q` gets orthonormal
/// columns, as many as it has. `room` is for a row and a column. The signs are those of Eigen's
/// `HouseholderQR`.
pub(super) fn qr<F: Field>(
    matrix: &mut Grid<'_, F>,
    q: &mut Grid<'_, F>,
    room: &mut [F],
) -> Result<()> {
    let rows = matrix.rows;
    let (tail, scales) = room.split_at_mut(rows);
    let scales = &mut scales[..rows.min(matrix.columns)];
    // What turned a column stands below the diagonal, where zeros come to be, until it was used.
    for (k, scale) in scales.iter_mut().enumerate() {
        let tail = &mut tail[..rows - k];
        let beta = reflection(matrix, k, tail, scale);
        matrix.reflect(k, tail, *scale, k + 1)?;
        matrix.set(k, k, beta);
        (1..rows - k).for_each(|i| matrix.set(k + i, k, tail[i]));
    }
    q.make_identity();
    for (k, scale) in scales.iter().enumerate().rev() {
        let tail = &mut tail[..rows - k];
        tail[0] = F::one();
        for (i, v) in tail.iter_mut().enumerate().skip(1) {
            *v = matrix.at(k + i, k);
            matrix.set(k + i, k, F::zero());
        }
        q.reflect(k, tail, scale.conjugate(), 0)?;
    }
    Ok(())
}

/// Makes the reflection, a vector and a factor, that turns column `k`, from the diagonal on, into
/// one number, which is returned.
fn reflection<F: Field>(matrix: &Grid<'_, F>, k: usize, tail: &mut [F], scale: &mut F) -> F {
    let head = matrix.at(k, k);
    let below: f64 = (k + 1..matrix.rows).map(|row| matrix.at(row, k).size().powi(2)).sum();
    tail.fill(F::zero());
    tail[0] = F::one();
    if below <= f64::MIN_POSITIVE && (head - F::real(head.real_part())).size() == 0. {
        *scale = F::zero();
        return head;
    }
    let norm = (head.size().powi(2) + below).sqrt();
    let beta = F::real(if head.real_part() >= 0. { -norm } else { norm });
    for (i, v) in tail.iter_mut().enumerate().skip(1) {
        *v = matrix.at(k + i, k) / (head - beta);
    }
    *scale = ((beta - head) / beta).conjugate();
    beta
}

/// Singular values and vectors of a matrix of at least as many rows as columns.
pub(super) struct Svd<'a, F> {
    /// The matrix, which is turned until its columns are orthogonal.
    pub(super) turned: Grid<'a, F>,
    /// The turns: the right vectors as columns.
    pub(super) right: Grid<'a, F>,
    /// The left vectors as columns: as many as there are values, or as rows.
    pub(super) left: Grid<'a, F>,
    /// The value of each column of `turned` and `right`.
    pub(super) norms: &'a mut [f64],
    /// The columns by value, the largest first.
    pub(super) order: &'a mut [usize],
}

impl<F: Field> Svd<'_, F> {
    /// Makes all but the left vectors of `turned`.
    pub(super) fn turn(&mut self) -> Result<()> {
        let Self { turned, right, norms, order, .. } = self;
        let n = turned.columns;
        let scale = (0..n).map(|column| turned.norm(column)).fold(0., f64::max);
        right.make_identity();
        // Each sweep at least halves what is left; matrices with NaN never settle.
        for _ in 0..60 {
            let mut settled = true;
            for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
                pace(8 * turned.rows)?;
                if let Some(turn) = OrthogonalTurn::of(turned, a, b, scale) {
                    settled = false;
                    turn.apply(turned, a, b);
                    turn.apply(right, a, b);
                }
            }
            if settled {
                break;
            }
        }
        norms.iter_mut().enumerate().for_each(|(column, norm)| *norm = turned.norm(column));
        order.iter_mut().enumerate().for_each(|(i, column)| *column = i);
        order.sort_unstable_by(|a, b| norms[*b].total_cmp(&norms[*a]).then(a.cmp(b)));
        Ok(())
    }

    /// Makes the left vectors: those of values above zero, and as many more of unit vectors as
    /// there are columns.
    pub(super) fn complete(&mut self) -> Result<()> {
        let Self { turned, left, norms, order, .. } = self;
        let is_there = |column: usize| order.get(column).is_some_and(|i| norms[*i] > 0.);
        for i in 0..left.data.len() {
            let (row, column) = (i / left.columns, i % left.columns);
            left.data[i] = match is_there(column) {
                true => turned.at(row, order[column]) / F::real(norms[order[column]]),
                false => F::zero(),
            };
        }
        for column in (0..left.columns).filter(|column| !is_there(*column)) {
            pace(4 * left.data.len())?;
            left.add_column(column, |other| other < column || is_there(other));
        }
        Ok(())
    }
}

/// A rotation of two columns that makes them orthogonal.
struct OrthogonalTurn<F> {
    phase: F,
    cos: f64,
    sin: f64,
}

impl<F: Field> OrthogonalTurn<F> {
    /// `None` if they are orthogonal already, or one is nothing beside the longest column, which is
    /// `scale` long: turning it again would end in numbers too small to divide by.
    fn of(matrix: &Grid<'_, F>, a: usize, b: usize, scale: f64) -> Option<Self> {
        let product = matrix.inner(a, b);
        let (size, norms) = (product.size(), (matrix.norm(a), matrix.norm(b)));
        let nothing = (f64::EPSILON * scale).powi(2);
        if size <= f64::EPSILON * norms.0 * norms.1 || size <= nothing {
            return None;
        }
        let zeta = (norms.1.powi(2) - norms.0.powi(2)) / (2. * size);
        let tan = zeta.signum() / (zeta.abs() + zeta.hypot(1.));
        let cos = 1. / tan.hypot(1.);
        Some(Self { phase: (product / F::real(size)).conjugate(), cos, sin: cos * tan })
    }

    fn apply(&self, matrix: &mut Grid<'_, F>, a: usize, b: usize) {
        let (cos, sin) = (F::real(self.cos), F::real(self.sin));
        for row in 0..matrix.rows {
            let (x, y) = (matrix.at(row, a), matrix.at(row, b) * self.phase);
            matrix.set(row, a, cos * x - sin * y);
            matrix.set(row, b, sin * x + cos * y);
        }
    }
}

impl<F: Field> Grid<'_, F> {
    /// Makes a column of zeros a unit vector that is orthogonal to the columns that are `done`.
    fn add_column(&mut self, column: usize, done: impl Fn(usize) -> bool) {
        let (rows, columns) = (self.rows, self.columns);
        // The unit vector that is farthest from what is there.
        let far =
            |row: usize| -> f64 { (0..columns).map(|c| self.at(row, c).size().powi(2)).sum() };
        let best = (0..rows).min_by(|a, b| far(*a).total_cmp(&far(*b))).unwrap_or(0);
        self.set(best, column, F::one());
        // Twice, since what is left may be small.
        for _ in 0..2 {
            for other in (0..columns).filter(|other| done(*other)) {
                let part = self.inner(other, column);
                for row in 0..rows {
                    self.set(row, column, self.at(row, column) - part * self.at(row, other));
                }
            }
        }
        let norm = F::real(self.norm(column));
        (0..rows).for_each(|row| self.set(row, column, self.at(row, column) / norm));
    }
}
