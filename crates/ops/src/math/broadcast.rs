//! `Layout`: how the elements of two operands meet in a broadcast, and the walk over them.
//!
//! Dimensions along which both operands behave alike are merged, so that what is left is a row and
//! the few axes around it. A kernel sees only pairs of slices of the same length: an operand that
//! is repeated along the row is splatted to a block first. No element needs a division.

use pool::Pool;
use smallvec::SmallVec;
use tensor::Shape;

use super::table::BLOCK;
use crate::pieces::in_pieces;

/// Elements that can be copied about by any thread.
pub(super) trait Plain: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Plain for T {}

/// The merged dimensions of a broadcast of two operands.
#[derive(Debug)]
pub(super) struct Layout {
    /// Outermost first. The last one is the row; there is at least one.
    axes: SmallVec<[Axis; 4]>,
}

/// One merged dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    /// `true` for operands that have this dimension, and are not repeated along it.
    has: [bool; 2],
    /// The distance between neighbours along the dimension in the operands: 0 where repeated.
    steps: [usize; 2],
}

/// The operands of a walk.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a, T> {
    /// The first; `None` if its elements are in the output already.
    pub(super) a: Option<&'a [T]>,
    /// The second.
    pub(super) b: &'a [T],
}

impl<T> Operands<'_, T> {
    /// The same from these elements on.
    fn from(self, starts: [usize; 2]) -> Self {
        Self { a: self.a.map(|a| &a[starts[0]..]), b: &self.b[starts[1]..] }
    }
}

/// The threads that share a walk.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    /// The threads.
    pub(super) pool: &'a Pool,
    /// The elements that one takes at a time.
    pub(super) grain: usize,
}

impl Layout {
    /// The layout of operands of these shapes, which broadcast to `out`.
    pub(super) fn new(a: &Shape, b: &Shape, out: &Shape) -> Self {
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        let dim = |shape: &Shape, i: usize| {
            (i + shape.rank()).checked_sub(out.rank()).map_or(1, |at| shape[at])
        };
        for i in (0..out.rank()).rev().filter(|i| out[*i] != 1) {
            let has = [dim(a, i) != 1, dim(b, i) != 1];
            match axes.last_mut() {
                Some(inner) if inner.has == has => inner.size *= out[i],
                _ => axes.push(Axis { size: out[i], has, steps: [0, 0] }),
            }
        }
        if axes.is_empty() {
            axes.push(Axis { size: 1, has: [true, true], steps: [0, 0] });
        }
        let mut strides = [1, 1];
        for axis in &mut axes {
            for ((step, stride), has) in axis.steps.iter_mut().zip(&mut strides).zip(axis.has) {
                if has {
                    *step = *stride;
                    *stride *= axis.size;
                }
            }
        }
        axes.reverse();
        Self { axes }
    }

    /// Calls `kernel` with the operands' elements that meet in each part of `out`.
    pub(super) fn walk<T: Plain, U: Plain>(
        &self,
        share: Share<'_>,
        operands: Operands<'_, T>,
        out: &mut [U],
        kernel: impl Fn(&[T], &[T], &mut [U]) + Sync,
    ) {
        if out.is_empty() {
            return;
        }
        let (outer, row) = self.rows();
        let unit = if outer.is_empty() { row.period } else { row.size };
        let grain = (share.grain / unit).max(1) * unit;
        in_pieces(share.pool, out, grain, |at, piece| {
            let mut spare = [T::zeroed(); BLOCK];
            if outer.is_empty() {
                let starts = row.has.map(|has| if has { at } else { 0 });
                row.walk(operands.from(starts), &mut spare, piece, &kernel);
                return;
            }
            let mut place = BroadcastPlace::at(outer, at / row.size);
            for out in piece.chunks_mut(row.size) {
                row.walk(operands.from(place.starts), &mut spare, out, &kernel);
                place.advance(outer);
            }
        });
    }

    /// The axes around the rows, and the row. A short row that the next axis only repeats for one
    /// operand makes a longer row with it, of a pattern.
    fn rows(&self) -> (&[Axis], BroadcastRow) {
        let (inner, outer) = self.axes.split_last().expect("there is a row");
        if let [rest @ .., next] = outer
            && inner.has == [true, true]
            && inner.size <= BLOCK / 4
        {
            let size = inner.size * next.size;
            return (rest, BroadcastRow { size, period: inner.size, has: next.has });
        }
        (outer, BroadcastRow { size: inner.size, period: 1, has: inner.has })
    }
}

/// A row of the output.
#[derive(Debug, Clone, Copy)]
struct BroadcastRow {
    size: usize,
    /// The elements that an operand without this dimension repeats: 1 for a single value.
    period: usize,
    has: [bool; 2],
}

impl BroadcastRow {
    /// Calls `kernel` for a row that the operands start with; `spare` is overwritten.
    fn walk<T: Plain, U: Plain>(
        self,
        operands: Operands<'_, T>,
        spare: &mut [T; BLOCK],
        out: &mut [U],
        kernel: &impl Fn(&[T], &[T], &mut [U]),
    ) {
        let n = out.len();
        let b = operands.b;
        match (operands.a, self.has) {
            (Some(a), [true, true]) => {
                kernel(&a[..n], &b[..n], out);
            }
            (Some(a), [true, false]) => {
                let b = self.tile(b, n, spare);
                for (a, out) in a[..n].chunks(b.len()).zip(out.chunks_mut(b.len())) {
                    kernel(a, &b[..a.len()], out);
                }
            }
            (Some(a), [false, _]) => {
                let a = self.tile(a, n, spare);
                for (b, out) in b[..n].chunks(a.len()).zip(out.chunks_mut(a.len())) {
                    kernel(&a[..b.len()], b, out);
                }
            }
            (None, [true, true]) => {
                for (b, out) in b[..n].chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                    kernel(copy(out, spare), b, out);
                }
            }
            (None, _) => {
                let mut pattern = [T::zeroed(); BLOCK];
                let b = self.tile(b, n, &mut pattern);
                for out in out.chunks_mut(b.len()) {
                    kernel(copy(out, spare), &b[..out.len()], out);
                }
            }
        }
    }

    /// The first `period` of `values` over and over, up to `n` elements or a block.
    fn tile<'s, T: Plain>(self, values: &[T], n: usize, spare: &'s mut [T; BLOCK]) -> &'s [T] {
        let n = n.min(BLOCK / self.period * self.period);
        let tile = &mut spare[..n];
        if let ([value, ..], 1) = (values, self.period) {
            tile.fill(*value);
            return tile;
        }
        for part in tile.chunks_mut(self.period) {
            part.copy_from_slice(&values[..part.len()]);
        }
        tile
    }
}

/// A copy of what the output holds, seen as the operand's type.
fn copy<'s, T: Plain, U: Plain>(out: &[U], spare: &'s mut [T; BLOCK]) -> &'s [T] {
    let copy = &mut spare[..out.len()];
    copy.copy_from_slice(bytemuck::cast_slice(out));
    copy
}

/// The place in the operands where a row starts.
struct BroadcastPlace {
    index: SmallVec<[usize; 4]>,
    starts: [usize; 2],
}

impl BroadcastPlace {
    fn at(outer: &[Axis], mut row: usize) -> Self {
        let mut index = SmallVec::from_elem(0, outer.len());
        let mut starts = [0, 0];
        for (at, axis) in index.iter_mut().zip(outer).rev() {
            *at = row % axis.size;
            row /= axis.size;
            starts[0] += *at * axis.steps[0];
            starts[1] += *at * axis.steps[1];
        }
        Self { index, starts }
    }

    fn advance(&mut self, outer: &[Axis]) {
        for (at, axis) in self.index.iter_mut().zip(outer).rev() {
            *at += 1;
            self.starts[0] += axis.steps[0];
            self.starts[1] += axis.steps[1];
            if *at < axis.size {
                return;
            }
            self.starts[0] -= axis.size * axis.steps[0];
            self.starts[1] -= axis.size * axis.steps[1];
            *at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broadcasts a sum of two ranges and compares it with one made by indices.
    #[track_caller]
    fn check(a: &[usize], b: &[usize]) {
        let (a, b) = (Shape::of(a), Shape::of(b));
        let out = crate::infer::broadcast_shapes(&a, &b).expect("shapes that broadcast");
        let range = |n: usize| (0..n).map(|i| i as i64).collect::<Vec<i64>>();
        let (x, y) = (range(a.n_elements()), range(b.n_elements()));
        let y: Vec<i64> = y.iter().map(|y| y * 100_000).collect();
        let at = |shape: &Shape, mut i: usize| {
            let mut index = 0;
            let mut stride = 1;
            for axis in (0..out.rank()).rev() {
                let place = i % out[axis];
                i /= out[axis];
                if let Some(own) = (axis + shape.rank()).checked_sub(out.rank()) {
                    index += if shape[own] == 1 { 0 } else { place * stride };
                    stride *= shape[own];
                }
            }
            index
        };
        let n = out.n_elements();
        let expected: Vec<i64> = (0..n).map(|i| x[at(&a, i)] + y[at(&b, i)]).collect();
        let kernel = |a: &[i64], b: &[i64], out: &mut [i64]| {
            assert!(a.len() == out.len() && b.len() == out.len());
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a + b);
        };
        let layout = Layout::new(&a, &b, &out);
        for (n_threads, grain) in [(1, 1000), (2, 7)] {
            let pool = Pool::new(n_threads);
            let mut got = vec![0i64; n];
            let share = Share { pool: &pool, grain };
            layout.walk(share, Operands { a: Some(&x), b: &y }, &mut got, kernel);
            assert_eq!(got, expected, "{a} {b}");
            if a == out {
                let mut got = x.clone();
                let share = Share { pool: &pool, grain };
                layout.walk(share, Operands { a: None, b: &y }, &mut got, kernel);
                assert_eq!(got, expected, "{a} {b} in place");
            }
        }
    }

    #[test]
    fn every_kind_of_broadcast_meets_the_right_elements() {
        check(&[], &[]);
        check(&[5], &[]);
        check(&[], &[5]);
        check(&[4, 3], &[4, 3]);
        check(&[400, 3], &[3]);
        check(&[3], &[400, 3]);
        check(&[3, 300], &[300]);
        check(&[40, 3], &[40, 1]);
        check(&[2, 1, 3], &[2, 5, 1]);
        check(&[2, 4, 5, 3], &[4, 1, 3]);
        check(&[7, 1, 600], &[7, 2, 1]);
        check(&[1, 1], &[2, 2]);
        check(&[0, 3], &[3]);
        check(&[2, 3, 4, 5], &[2, 3, 1, 1]);
    }
}
