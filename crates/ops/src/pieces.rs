//! Sharing the elements of an output among the compute threads.

use pool::Pool;

/// Calls `work` with each piece of `out` of at most `len` elements and the index of its first. The
/// pieces do not depend on the number of threads.
pub(crate) fn in_pieces<T: Send>(
    pool: &Pool,
    out: &mut [T],
    len: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let len = len.max(1);
    if out.len() <= len {
        if !out.is_empty() {
            work(0, out);
        }
        return;
    }
    pool.run_chunks(out, len, &|i, piece| work(i * len, piece));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited_once() {
        for n_threads in [1, 3] {
            let mut out = vec![0usize; 10];
            in_pieces(&Pool::new(n_threads), &mut out, 4, |at, piece| {
                piece.iter_mut().enumerate().for_each(|(i, x)| *x += at + i);
            });
            assert_eq!(out, (0..10).collect::<Vec<_>>());
        }
    }
}
