//! Tasks that each write their own part of a slice.

use crate::pool::Pool;

impl Pool {
    /// Calls `task` once with the number and the elements of each piece of `data` that is `size`
    /// long (the last may be shorter), and returns when all are done.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn run_chunks<T: Send>(
        &self,
        data: &mut [T],
        size: usize,
        task: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        assert!(size > 0);
        let (len, start) = (data.len(), Start(data.as_mut_ptr()));
        self.run(len.div_ceil(size), &|index| {
            let at = index * size;
            let n = size.min(len - at);
            // SAFETY: `index` is below the number of pieces, so `at` is inside of `data`.
            let first = unsafe { start.get().add(at) };
            // SAFETY: the piece lies in `data`, which is borrowed until `run` returns; pieces do
            // not overlap, and `run` calls each number once, so no other task has this one.
            let piece = unsafe { std::slice::from_raw_parts_mut(first, n) };
            task(index, piece);
        });
    }
}

/// The start of a slice whose disjoint pieces several threads write.
struct Start<T>(*mut T);

impl<T> Start<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: only used to hand disjoint pieces of elements that may be sent to other threads.
unsafe impl<T: Send> Sync for Start<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_written_once() {
        let pool = Pool::new(3);
        let mut data = vec![0usize; 103];
        pool.run_chunks(&mut data, 10, &|index, piece| {
            assert_eq!(piece.len(), if index == 10 { 3 } else { 10 });
            piece.iter_mut().for_each(|x| *x += index + 1);
        });
        assert!(data.iter().enumerate().all(|(i, x)| *x == i / 10 + 1));
        pool.run_chunks(&mut [0u8; 0], 1, &|_, _| panic!("no piece"));
    }
}
