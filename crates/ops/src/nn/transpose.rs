//! Between channels-first and channels-last: our kernels know only the latter.

/// Copies `[batch, rows, columns]` to `[batch, columns, rows]`.
pub(crate) fn swap_last<T: Copy>(from: &[T], to: &mut [T], rows: usize, columns: usize) {
    assert_eq!(from.len(), to.len());
    let size = (rows * columns).max(1);
    for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
        for (column, to) in to.chunks_exact_mut(rows).enumerate() {
            for (row, to) in to.iter_mut().enumerate() {
                *to = from[row * columns + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let mut to = [0; 6];
        swap_last(&[1, 2, 3, 4, 5, 6], &mut to, 2, 3);
        assert_eq!(to, [1, 4, 2, 5, 3, 6]);
    }
}
