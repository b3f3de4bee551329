//! `Walk`: copies between a dense tensor and one seen through strides.

use pool::Pool;
use smallvec::SmallVec;

use crate::cancel::is_stopped;
use crate::error::Result;
use crate::moves::Move;
use crate::pieces::in_pieces;

/// A square of elements that is transposed while its rows stay in the cache.
const TILE: usize = 16;

/// The bytes that one task copies.
const PIECE_BYTES: usize = 128 << 10;

/// For each element of a dense tensor, in order, where its partner in another tensor is.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    start: usize,
    /// Size and stride of each dimension, outermost first; neighbours that continue each other are
    /// one, and dimensions of size one are left out.
    axes: SmallVec<[(usize, isize); 6]>,
}

impl Walk {
    /// A walk that begins at `start` and has these dimensions: sizes, and how far apart in the
    /// partner their neighbours are.
    pub(crate) fn new(start: usize, axes: impl IntoIterator<Item = (usize, isize)>) -> Self {
        let mut merged: SmallVec<[(usize, isize); 6]> = SmallVec::new();
        for (size, stride) in axes {
            if size == 1 {
                continue;
            }
            match merged.last_mut() {
                Some(outer) if outer.1 == stride.wrapping_mul(size as isize) => {
                    *outer = (outer.0 * size, stride);
                }
                _ => merged.push((size, stride)),
            }
        }
        Self { start, axes: merged }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.0).product()
    }

    /// Fills the dense `to` from the partner `from`.
    pub(crate) fn gather<T: Copy>(&self, from: &[T], to: &mut [T]) {
        assert_eq!(to.len(), self.len());
        if !to.is_empty() {
            gather(&self.axes, self.start, from, to);
        }
    }

    /// The same with several threads where that pays.
    pub(crate) fn gather_with<T>(&self, pool: &Pool, from: &[T], to: &mut [T])
    where
        T: Copy + Send + Sync,
    {
        let Some(((size, stride), inner)) = self.axes.split_first() else {
            return self.gather(from, to);
        };
        if to.is_empty() {
            return;
        }
        let inner_len = to.len() / size;
        let rows = (PIECE_BYTES / size_of::<T>()).div_ceil(inner_len);
        in_pieces(pool, to, rows * inner_len, |at, to| {
            let first = (at / inner_len) as isize;
            let start = self.start.wrapping_add_signed(stride * first);
            let mut axes = SmallVec::from_slice(&[(to.len() / inner_len, *stride)]);
            axes.extend_from_slice(inner);
            Self { start, axes }.gather(from, to);
        });
    }

    /// Writes the dense `from` to the partner `to`.
    pub(crate) fn scatter<T: Copy>(&self, from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), self.len());
        if !from.is_empty() {
            scatter(&self.axes, self.start, from, to);
        }
    }
}

/// A walk as a move of the first input.
pub(crate) struct Gather<'a> {
    pub(crate) walk: Walk,
    pub(crate) pool: &'a Pool,
}

impl Move for Gather<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        self.walk.gather_with(self.pool, inputs[0], output);
        Ok(())
    }
}

fn gather<T: Copy>(axes: &[(usize, isize)], start: usize, from: &[T], to: &mut [T]) {
    match axes {
        [] => to[0] = from[start],
        [(size, 1)] => to.copy_from_slice(&from[start..start + size]),
        [(_, 0)] => to.fill(from[start]),
        [(_, stride)] => {
            let mut at = start;
            for x in to {
                *x = from[at];
                at = at.wrapping_add_signed(*stride);
            }
        }
        [(rows, 1), (columns, stride)] if *stride > 0 => {
            transpose(&from[start..], (*rows, *columns), *stride as usize, to);
        }
        [(size, stride), inner @ ..] => {
            let mut at = start;
            for part in to.chunks_exact_mut(to.len() / size) {
                gather(inner, at, from, part);
                at = at.wrapping_add_signed(*stride);
            }
        }
    }
}

/// Writes `to[row][column] = from[row + column * stride]`, square by square.
fn transpose<T: Copy>(
    from: &[T],
    (n_rows, n_columns): (usize, usize),
    stride: usize,
    to: &mut [T],
) {
    for (band, rows) in to.chunks_mut(TILE * n_columns).enumerate() {
        let first_row = band * TILE;
        for first in (0..n_columns).step_by(TILE) {
            let last = (first + TILE).min(n_columns);
            for (i, row) in rows.chunks_exact_mut(n_columns).enumerate() {
                let source = &from[first_row + i..];
                for (column, x) in (first..last).zip(&mut row[first..last]) {
                    *x = source[column * stride];
                }
            }
        }
    }
    debug_assert_eq!(to.len(), n_rows * n_columns);
}

fn scatter<T: Copy>(axes: &[(usize, isize)], start: usize, from: &[T], to: &mut [T]) {
    match axes {
        [] => to[start] = from[0],
        [(size, 1)] => to[start..start + size].copy_from_slice(from),
        [(_, stride)] => {
            let mut at = start;
            for x in from {
                to[at] = *x;
                at = at.wrapping_add_signed(*stride);
            }
        }
        [(size, stride), inner @ ..] => {
            let mut at = start;
            for part in from.chunks_exact(from.len() / size) {
                if is_stopped(inner.last().map_or(1, |(size, _)| *size)) {
                    return;
                }
                scatter(inner, at, part, to);
                at = at.wrapping_add_signed(*stride);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: usize, axes: &[(usize, isize)], expected: &[u32]) {
        let from: Vec<u32> = (0..60).collect();
        let walk = Walk::new(start, axes.iter().copied());
        let mut to = vec![0; walk.len()];
        walk.gather(&from, &mut to);
        assert_eq!(to, expected);
        let mut back = vec![99; 60];
        walk.scatter(&to, &mut back);
        to.iter().for_each(|x| assert_eq!(back[*x as usize], *x));
    }

    #[test]
    fn strides_of_any_sign_lead_to_the_partner() {
        check(7, &[], &[7]);
        check(5, &[(3, -2)], &[5, 3, 1]);
        check(2, &[(2, 0), (2, 1)], &[2, 3, 2, 3]);
        check(0, &[(2, 1), (3, 2)], &[0, 2, 4, 1, 3, 5]);
        check(11, &[(2, -6), (2, -3), (2, -1)], &[11, 10, 8, 7, 5, 4, 2, 1]);
        check(0, &[(2, 6), (0, 1)], &[]);
    }

    #[test]
    fn dimensions_that_continue_each_other_are_one() {
        assert_eq!(Walk::new(0, [(2, 12), (3, 4), (1, 9), (4, 1)]).axes[..], [(24, 1)]);
    }

    #[test]
    fn threads_change_nothing() {
        let from: Vec<u64> = (0..300 * 400).collect();
        let walk = Walk::new(0, [(400, 1), (300, 400)]);
        let (mut one, mut many) = (vec![0; from.len()], vec![0; from.len()]);
        walk.gather(&from, &mut one);
        walk.gather_with(&Pool::new(3), &from, &mut many);
        assert_eq!(one, many);
        assert_eq!(one[1], 400);
    }
}
