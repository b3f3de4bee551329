//! The axes that are reduced, and the walk over the rest.

use smallvec::SmallVec;

use crate::prelude::*;

/// The axes of a reduction as one flag a dimension: whether it is reduced.
///
/// Fails for an axis that there is not, and for one named twice.
pub(super) fn flags(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 5]>> {
    let mut flags = SmallVec::from_elem(false, rank);
    for axis in axes {
        let at = normalise_axis(*axis, rank).map_err(|_| {
            Error::InvalidArgument(format!(
                "Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
            ))
        })?;
        if std::mem::replace(&mut flags[at], true) {
            return invalid!("Axes contains duplicate dimension: {axis}");
        }
    }
    Ok(flags)
}

/// The output's dimensions: those reduced are 1 if they are kept, else dropped.
pub(super) fn kept<T: Clone>(dims: &[T], flags: &[bool], one: Option<&T>) -> SmallVec<[T; 5]> {
    let keep =
        |(dim, reduced): (&T, &bool)| if *reduced { one.cloned() } else { Some(dim.clone()) };
    dims.iter().zip(flags).filter_map(keep).collect()
}

/// Dimensions merged to runs that are all reduced or all kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Runs {
    /// The row: the innermost run.
    pub(super) row: usize,
    /// `true` if the row is reduced to one element of the output, and not kept as a row of it.
    pub(super) reduced: bool,
    /// The runs around it, outermost first: size, and step in the output (0 if reduced).
    outer: SmallVec<[(usize, usize); 4]>,
}

impl Runs {
    /// The runs of a shape.
    pub(super) fn new(shape: &Shape, flags: &[bool]) -> Self {
        let mut runs: SmallVec<[(usize, bool); 5]> = SmallVec::new();
        for (size, reduced) in shape.iter().zip(flags).filter(|(size, _)| **size != 1) {
            match runs.last_mut() {
                Some(last) if last.1 == *reduced => last.0 *= size,
                _ => runs.push((*size, *reduced)),
            }
        }
        let (row, reduced) = runs.pop().unwrap_or((1, false));
        let mut step = if reduced { 1 } else { row };
        let mut outer: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (size, reduced) in runs.into_iter().rev() {
            outer.push((size, if reduced { 0 } else { step }));
            step *= if reduced { 1 } else { size };
        }
        outer.reverse();
        Self { row, reduced, outer }
    }

    /// Splits off the outermost run if it is kept: its size, and the runs inside. Each of its
    /// elements is a reduction of its own.
    pub(super) fn independent(self) -> (usize, Self) {
        match self.outer.split_first() {
            Some(((size, step), rest)) if *step > 0 => {
                let outer = SmallVec::from_slice(rest);
                (*size, Self { outer, ..self })
            }
            _ => (1, self),
        }
    }

    /// The number of rows.
    pub(super) fn n_rows(&self) -> usize {
        self.outer.iter().map(|(size, _)| size).product()
    }

    /// Calls `row` for each row in order, with where it goes to in the output.
    pub(super) fn for_each_row(&self, mut row: impl FnMut(usize, usize)) {
        let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.outer.len());
        let mut to = 0;
        for number in 0..self.n_rows() {
            if is_stopped(self.row) {
                return;
            }
            row(number, to);
            for (at, (size, step)) in index.iter_mut().zip(&self.outer).rev() {
                *at += 1;
                to += step;
                if *at < *size {
                    break;
                }
                to -= size * step;
                *at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_behave_alike_are_merged() {
        let runs = Runs::new(&Shape::of(&[2, 3, 1, 4, 5]), &[false, false, true, true, true]);
        assert_eq!((runs.row, runs.reduced, &runs.outer[..]), (20, true, &[(6, 1)][..]));
        let runs = Runs::new(&Shape::of(&[2, 3, 4]), &[false, true, false]);
        assert_eq!((runs.row, runs.reduced, &runs.outer[..]), (4, false, &[(2, 4), (3, 0)][..]));
        let mut rows = Vec::new();
        runs.for_each_row(|number, to| rows.push((number, to)));
        assert_eq!(rows, [(0, 0), (1, 0), (2, 0), (3, 4), (4, 4), (5, 4)]);
    }

    #[test]
    fn axes_are_checked() {
        assert_eq!(flags(&[-1, 0], 3).unwrap()[..], [true, false, true]);
        assert!(flags(&[1, -2], 3).is_err());
        assert!(flags(&[3], 3).is_err());
    }
}
