//! Decompositions of one matrix with orthonormal factors.

use super::square::Field;

/// A matrix, row by row.
#[derive(Debug, Clone)]
pub(super) struct Grid<F> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) data: Vec<F>,
}

impl<F: Field> Grid<F> {
    /// Ones on the diagonal.
    fn identity(rows: usize, columns: usize) -> Self {
        let one = |i: usize| if i / columns == i % columns { F::one() } else { F::zero() };
        Self { rows, columns, data: (0..rows * columns).map(one).collect() }
    }

    pub(super) fn adjoint(&self) -> Self {
        let at = |i: usize| self.at(i % self.rows, i / self.rows).conjugate();
        let data = (0..self.data.len()).map(at).collect();
        Self { rows: self.columns, columns: self.rows, data }
    }

    fn at(&self, row: usize, column: usize) -> F {
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
    fn reflect(&mut self, first: usize, tail: &[F], scale: F, from: usize) {
        for column in from..self.columns {
            let terms = tail.iter().enumerate();
            let product = terms
                .map(|(i, v)| v.conjugate() * self.at(first + i, column))
                .fold(F::zero(), |sum, term| sum + term);
            for (i, v) in tail.iter().enumerate() {
                let value = self.at(first + i, column) - scale * *v * product;
                self.set(first + i, column, value);
            }
        }
    }
}

/// Householder's factors: orthonormal columns, as many as rows if `full`, and an upper triangle.
/// The signs are those of Eigen's `HouseholderQR`.
pub(super) fn qr<F: Field>(mut matrix: Grid<F>, full: bool) -> (Grid<F>, Grid<F>) {
    let (rows, columns) = (matrix.rows, matrix.columns);
    let least = rows.min(columns);
    let mut steps = Vec::with_capacity(least);
    for k in 0..least {
        let (tail, scale, beta) = reflection(&matrix, k);
        matrix.reflect(k, &tail, scale, k + 1);
        matrix.set(k, k, beta);
        (k + 1..rows).for_each(|row| matrix.set(row, k, F::zero()));
        steps.push((tail, scale));
    }
    let mut q = Grid::identity(rows, if full { rows } else { least });
    for (k, (tail, scale)) in steps.iter().enumerate().rev() {
        q.reflect(k, tail, scale.conjugate(), 0);
    }
    if !full {
        matrix.data.truncate(least * columns);
        matrix.rows = least;
    }
    (q, matrix)
}

/// What turns column `k`, from the diagonal on, into one number: a vector, a factor, the number.
fn reflection<F: Field>(matrix: &Grid<F>, k: usize) -> (Vec<F>, F, F) {
    let head = matrix.at(k, k);
    let below: f64 = (k + 1..matrix.rows).map(|row| matrix.at(row, k).size().powi(2)).sum();
    let mut tail = vec![F::zero(); matrix.rows - k];
    tail[0] = F::one();
    if below <= f64::MIN_POSITIVE && (head - F::real(head.real_part())).size() == 0. {
        return (tail, F::zero(), head);
    }
    let norm = (head.size().powi(2) + below).sqrt();
    let beta = F::real(if head.real_part() >= 0. { -norm } else { norm });
    for (i, v) in tail.iter_mut().enumerate().skip(1) {
        *v = matrix.at(k + i, k) / (head - beta);
    }
    (tail, ((beta - head) / beta).conjugate(), beta)
}

/// Singular values, the largest first, and the left and right vectors as columns: as many as there
/// are values, or as many as rows and columns if `full`.
pub(super) fn svd<F: Field>(matrix: Grid<F>, full: bool) -> (Vec<f64>, Grid<F>, Grid<F>) {
    if matrix.rows < matrix.columns {
        let (values, left, right) = svd(matrix.adjoint(), full);
        return (values, right, left);
    }
    let n = matrix.columns;
    let scale = (0..n).map(|column| matrix.norm(column)).fold(0., f64::max);
    let (mut turned, mut right) = (matrix, Grid::identity(n, n));
    // Each sweep at least halves what is left; matrices with NaN never settle.
    for _ in 0..60 {
        let mut settled = true;
        for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
            if let Some(turn) = Turn::of(&turned, a, b, scale) {
                settled = false;
                turn.apply(&mut turned, a, b);
                turn.apply(&mut right, a, b);
            }
        }
        if settled {
            break;
        }
    }
    let norms: Vec<f64> = (0..n).map(|column| turned.norm(column)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| norms[*b].total_cmp(&norms[*a]));
    let values: Vec<f64> = order.iter().map(|column| norms[*column]).collect();
    let unit = |row: usize, column: usize| match norms[column] > 0. {
        true => turned.at(row, column) / F::real(norms[column]),
        false => F::zero(),
    };
    let pick = |rows: usize, at: &dyn Fn(usize, usize) -> F| Grid {
        rows,
        columns: n,
        data: (0..rows * n).map(|i| at(i / n, order[i % n])).collect(),
    };
    let left = pick(turned.rows, &unit);
    let right = pick(n, &|row, column| right.at(row, column));
    let columns = if full { left.rows } else { n };
    (values, complete(&left, columns), right)
}

/// A rotation of two columns that makes them orthogonal.
struct Turn<F> {
    phase: F,
    cos: f64,
    sin: f64,
}

impl<F: Field> Turn<F> {
    /// `None` if they are orthogonal already, or one is nothing beside the longest column, which is
    /// `scale` long: turning it again would end in numbers too small to divide by.
    fn of(matrix: &Grid<F>, a: usize, b: usize, scale: f64) -> Option<Self> {
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

    fn apply(&self, matrix: &mut Grid<F>, a: usize, b: usize) {
        let (cos, sin) = (F::real(self.cos), F::real(self.sin));
        for row in 0..matrix.rows {
            let (x, y) = (matrix.at(row, a), matrix.at(row, b) * self.phase);
            matrix.set(row, a, cos * x - sin * y);
            matrix.set(row, b, sin * x + cos * y);
        }
    }
}

/// As many orthonormal columns as asked for, those that are zero or missing made of unit vectors.
fn complete<F: Field>(vectors: &Grid<F>, columns: usize) -> Grid<F> {
    let rows = vectors.rows;
    let mut all = Grid { rows, columns, data: vec![F::zero(); rows * columns] };
    let is_there = |column| column < vectors.columns && vectors.norm(column) > 0.;
    let mut done: Vec<bool> = (0..columns).map(is_there).collect();
    for column in 0..vectors.columns {
        (0..rows).for_each(|row| all.set(row, column, vectors.at(row, column)));
    }
    for column in 0..columns {
        if done[column] {
            continue;
        }
        // The unit vector that is farthest from what is there.
        let far = |row: usize| -> f64 { (0..columns).map(|c| all.at(row, c).size().powi(2)).sum() };
        let best = (0..rows).min_by(|a, b| far(*a).total_cmp(&far(*b))).unwrap_or(0);
        all.set(best, column, F::one());
        // Twice, since what is left may be small.
        for _ in 0..2 {
            for other in (0..columns).filter(|other| done[*other]) {
                let part = all.inner(other, column);
                for row in 0..rows {
                    all.set(row, column, all.at(row, column) - part * all.at(row, other));
                }
            }
        }
        let norm = F::real(all.norm(column));
        (0..rows).for_each(|row| all.set(row, column, all.at(row, column) / norm));
        done[column] = true;
    }
    all
}
