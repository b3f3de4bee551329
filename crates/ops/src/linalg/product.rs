//! The product of two matrices of any element: the path of all dtypes but `f32`.

use super::Scalar;

/// A matrix to read: elements and how far apart they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    /// The elements.
    pub(crate) data: &'a [T],
    /// Rows and columns, as they are multiplied.
    pub(crate) size: (usize, usize),
    /// How far apart rows are, and columns.
    pub(crate) strides: (usize, usize),
    /// Whether the complex conjugates are meant.
    pub(crate) conjugate: bool,
}

/// How a matrix is stored, compared with how it is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Plain,
    /// Transposed.
    Transposed,
    /// Transposed and conjugated.
    Adjoint,
}

impl Form {
    /// The form that a `transpose` attribute means.
    pub(crate) fn transposed(transpose: bool) -> Self {
        if transpose { Self::Transposed } else { Self::Plain }
    }

    /// The form that an `adj` attribute means.
    pub(crate) fn adjoint(adjoint: bool) -> Self {
        if adjoint { Self::Adjoint } else { Self::Plain }
    }

    /// The two numbers of a matrix as it is multiplied, from those as it is stored.
    pub(crate) fn orient<N>(self, (rows, columns): (N, N)) -> (N, N) {
        if self == Self::Plain { (rows, columns) } else { (columns, rows) }
    }
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix stored row by row, of the stored `size`.
    pub(crate) fn new(data: &'a [T], size: (usize, usize), form: Form) -> Self {
        assert_eq!(data.len(), size.0 * size.1);
        Self {
            data,
            size: form.orient(size),
            strides: form.orient((size.1, 1)),
            conjugate: form == Form::Adjoint,
        }
    }
}

/// Writes `a · b` to `out`, row by row. Each element sums over the inner dimension in order.
pub(crate) fn product<T: Scalar>(a: Matrix<'_, T>, b: Matrix<'_, T>, out: &mut [T]) {
    let ((rows, inner), columns) = (a.size, b.size.1);
    assert_eq!(inner, b.size.0);
    assert_eq!(out.len(), rows * columns);
    out.fill(T::ZERO);
    for (i, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
        for k in 0..inner {
            let x = a.data[i * a.strides.0 + k * a.strides.1];
            let x = if a.conjugate { x.conjugate() } else { x };
            add_row(x, b, k, out);
        }
    }
}

/// Adds `x` times row `k` of `b` to `out`.
fn add_row<T: Scalar>(x: T, b: Matrix<'_, T>, k: usize, out: &mut [T]) {
    let (row, step) = (&b.data[k * b.strides.0..], b.strides.1);
    match (step, b.conjugate) {
        (1, false) => {
            out.iter_mut().zip(row).for_each(|(out, y)| *out = out.plus_product(x, *y));
        }
        (_, false) => {
            let row = row.iter().step_by(step);
            out.iter_mut().zip(row).for_each(|(out, y)| *out = out.plus_product(x, *y));
        }
        (_, true) => {
            let row = row.iter().step_by(step);
            out.iter_mut().zip(row).for_each(|(out, y)| *out = out.plus_product(x, y.conjugate()));
        }
    }
}
