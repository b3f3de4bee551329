//! A packing problem without what does not matter to it.
//!
//! Times become *sections*: only sets of buffers that live together and are contained in no other
//! such set are kept, for two buffers that ever live together do so in one of those. Bytes become
//! units, the greatest common divisor of all sizes.

use super::Span;

/// Buffers to be packed below a capacity.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    /// The buffers, in the order of the spans they came from, empty ones included.
    pub(super) items: Vec<Item>,
    pub(super) n_sections: usize,
    /// In units.
    pub(super) capacity: i64,
    unit_bytes: u64,
}

/// Keeps sums of sizes, which are below the capacity where they matter, far from overflowing.
const CAPACITY_BYTES_MAX: u64 = 1 << 60;

/// The search keeps a list of the items that cover each section: this bounds its memory.
const N_COVERED_MAX: usize = 1 << 22;

/// A buffer that lives in the sections `lo..hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) lo: usize,
    pub(super) hi: usize,
    pub(super) units: i64,
}

impl Item {
    pub(super) fn covers(&self, section: usize) -> bool {
        self.lo <= section && section < self.hi
    }

    /// The number of sections that the item lives in.
    pub(super) fn n_sections(&self) -> i64 {
        i64::try_from(self.hi - self.lo).expect("sections are few")
    }
}

impl Problem {
    /// The problem of packing `spans`, which are not empty, below `capacity_bytes`; `None` if it is
    /// too large to be searched.
    pub(super) fn new(spans: &[Span], capacity_bytes: u64) -> Option<Problem> {
        if capacity_bytes > CAPACITY_BYTES_MAX {
            return None;
        }
        let unit_bytes = spans.iter().fold(0, |unit, span| gcd(unit, span.bytes)).max(1);
        let units = |bytes: u64| i64::try_from(bytes / unit_bytes).unwrap_or(i64::MAX);
        let sections = sections(spans);
        let items = spans.iter().map(|span| Item {
            lo: sections.partition_point(|step| *step < span.first),
            hi: sections.partition_point(|step| *step <= span.last),
            units: units(span.bytes),
        });
        let items: Vec<Item> = items.collect();
        let n_covered: usize = items.iter().map(|item| item.hi - item.lo).sum();
        let capacity = units(capacity_bytes);
        let n_sections = sections.len();
        (n_covered <= N_COVERED_MAX).then_some(Problem { items, n_sections, capacity, unit_bytes })
    }

    /// An offset in bytes.
    pub(super) fn bytes(&self, units: i64) -> u64 {
        u64::try_from(units).expect("offsets are not negative") * self.unit_bytes
    }
}

/// The steps at which the set of live buffers is contained in no other: where a buffer begins, and
/// one ends before the next begins.
fn sections(spans: &[Span]) -> Vec<u32> {
    let mut begins: Vec<u32> = spans.iter().map(|span| span.first).collect();
    begins.sort_unstable();
    begins.dedup();
    let mut ends: Vec<u32> = spans.iter().map(|span| span.last).collect();
    ends.sort_unstable();
    let is_maximal = |at: &usize| {
        let until = begins.get(at + 1).copied().unwrap_or(u32::MAX);
        let next = ends.partition_point(|end| *end < begins[*at]);
        at + 1 == begins.len() || ends.get(next).is_some_and(|end| *end < until)
    };
    (0..begins.len()).filter(is_maximal).map(|at| begins[at]).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spans: &[(u32, u32)], expected: &[u32]) {
        let span = |&(first, last): &(u32, u32)| Span { first, last, bytes: 1 };
        assert_eq!(sections(&spans.iter().map(span).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn only_the_largest_sets_of_live_buffers_are_kept() {
        check(&[(0, 5)], &[0]);
        check(&[(0, 5), (2, 3)], &[2]);
        check(&[(0, 2), (2, 4), (4, 6)], &[2, 4]);
        check(&[(0, 1), (2, 3)], &[0, 2]);
        check(&[(0, 9), (1, 2), (2, 3), (5, 6)], &[2, 5]);
    }
}
