//! The product of two matrices of any element: the path of all dtypes but `f32`.

use kernels::Matrix;

use super::Scalar;
use crate::cancel::is_stopped;

/// Writes `a · b` to `out`, row by row. Each element sums over the inner dimension in order.
pub(crate) fn product<T: Scalar>(a: Matrix<'_, T>, b: Matrix<'_, T>, out: &mut [T]) {
    let ((rows, inner), columns) = (a.size, b.size.1);
    assert_eq!(inner, b.size.0);
    assert_eq!(out.len(), rows * columns);
    out.fill(T::ZERO);
    for (i, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
        for k in 0..inner {
            if is_stopped(columns) {
                return;
            }
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
