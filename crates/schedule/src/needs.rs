//! `Needs`: how many bytes batches of each size have needed, and so will.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use batch::Class;
use device::Workspace;
use tensor::Tensor;

use crate::task::{Control, Fault, Work};

/// The number of classes told apart; the one that has not been seen for longest is forgotten.
const CLASSES_MAX: usize = 16;

/// Known needs of a queue's batches, by the class of their tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs {
    /// The class that was seen last comes last.
    lines: Vec<(Class, NeedsLine)>,
}

/// The smallest and the largest batch that is known. Between them the need is a line; beyond the
/// largest it grows no faster than the rows, since what does not depend on rows is not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeedsLine {
    small: NeedsPoint,
    large: NeedsPoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NeedsPoint {
    rows: u64,
    bytes: u64,
}

impl Needs {
    /// Takes note of what a batch needs.
    pub(crate) fn note(&mut self, class: &Class, n_rows: usize, bytes: u64) {
        let point = NeedsPoint { rows: n_rows.max(1) as u64, bytes };
        let known = self.lines.iter().position(|(known, _)| known == class);
        let mut line = match known {
            Some(place) => self.lines.remove(place).1,
            None => NeedsLine { small: point, large: point },
        };
        if point.rows < line.small.rows
            || (point.rows == line.small.rows && bytes > line.small.bytes)
        {
            line.small = point;
        }
        if point.rows > line.large.rows
            || (point.rows == line.large.rows && bytes > line.large.bytes)
        {
            line.large = point;
        }
        if self.lines.len() >= CLASSES_MAX {
            self.lines.remove(0);
        }
        self.lines.push((class.clone(), line));
    }

    /// Returns whether a batch of `n_rows` would tell something new.
    pub(crate) fn is_news(&self, class: &Class, n_rows: usize) -> bool {
        let known = self.lines.iter().find(|(known, _)| known == class);
        known.is_none_or(|(_, line)| (n_rows as u64) > line.large.rows)
    }

    /// The most bytes that a batch needs that has more rows than any before it; `None` if it has
    /// not, or nothing is known of such tasks.
    pub(crate) fn beyond(&self, class: &Class, n_rows: usize) -> Option<u64> {
        let (_, line) = self.lines.iter().find(|(known, _)| known == class)?;
        let NeedsPoint { rows, bytes } = line.large;
        (n_rows as u64 > rows).then(|| scaled(bytes, n_rows as u64, rows))
    }

    /// The most rows that fit in `free_bytes`, at least 1; `None` before the first batch.
    pub(crate) fn rows_within(&self, class: &Class, free_bytes: u64) -> Option<usize> {
        let (_, line) = self.lines.iter().find(|(known, _)| known == class)?;
        let NeedsLine { small, large } = *line;
        let rows = if free_bytes >= large.bytes {
            scaled(large.rows, free_bytes, large.bytes)
        } else if free_bytes > small.bytes {
            let more = scaled(
                large.rows - small.rows,
                free_bytes - small.bytes,
                large.bytes - small.bytes,
            );
            small.rows + more
        } else {
            1
        };
        Some(usize::try_from(rows).unwrap_or(usize::MAX).max(1))
    }

    /// The fewest rows that fit, over all classes.
    pub(crate) fn rows_fit(&self, free_bytes: u64) -> Option<usize> {
        self.lines.iter().filter_map(|(class, _)| self.rows_within(class, free_bytes)).min()
    }
}

/// A work that is asked how many bytes its first run needs.
pub(crate) struct Weighed<'a> {
    work: &'a dyn Work,
    is_asked: AtomicBool,
    /// 0 if there is no telling.
    bytes: AtomicU64,
}

impl<'a> Weighed<'a> {
    pub(crate) fn new(work: &'a dyn Work, asks: bool) -> Self {
        Self { work, is_asked: AtomicBool::new(!asks), bytes: AtomicU64::new(0) }
    }

    /// The bytes that the first run needs, if it was asked and can be told.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

impl Work for Weighed<'_> {
    fn run(
        &self,
        inputs: &[Tensor],
        control: &Control,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>, Fault> {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            let bytes = self.work.needs(inputs).unwrap_or(0);
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        self.work.run(inputs, control, workspace)
    }

    fn is_repeatable(&self) -> bool {
        self.work.is_repeatable()
    }

    fn is_steady(&self, inputs: &[Tensor]) -> bool {
        self.work.is_steady(inputs)
    }
}

fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(columns: usize) -> Class {
        let tensor = Tensor::from_slice(tensor::Shape::of(&[1, columns]), &vec![0u8; columns]);
        Class::new(&[tensor.unwrap()], false)
    }

    #[test]
    fn what_fits_is_told_from_the_smallest_and_the_largest_batch() {
        let mut needs = Needs::default();
        let class = class(1);
        assert_eq!(needs.rows_within(&class, 1000), None);
        // 100 bytes and 10 for each row.
        needs.note(&class, 1, 110);
        let check = |needs: &Needs, free, rows| {
            assert_eq!(needs.rows_within(&class, free), Some(rows), "{free}");
        };
        // Nothing is known of what does not grow: at worst a row needs all of it.
        check(&needs, 500, 4);
        assert!(needs.is_news(&class, 4));
        needs.note(&class, 4, 140);
        assert!(!needs.is_news(&class, 4) && !needs.is_news(&class, 3));
        assert_eq!([3, 4, 8].map(|rows| needs.beyond(&class, rows)), [None, None, Some(280)]);
        check(&needs, 1000, 28);
        check(&needs, 140, 4);
        check(&needs, 139, 3);
        check(&needs, 110, 1);
        check(&needs, 0, 1);
    }

    #[test]
    fn classes_are_told_apart_and_the_oldest_forgotten() {
        let mut needs = Needs::default();
        (1..=CLASSES_MAX + 1).for_each(|columns| needs.note(&class(columns), 1, columns as u64));
        assert_eq!(needs.rows_within(&class(1), 100), None);
        assert_eq!(needs.rows_within(&class(2), 100), Some(50));
        assert_eq!(needs.rows_fit(100), Some(100 / (CLASSES_MAX + 1)));
    }
}
