//! Sorting that a run can stop: parts of it at a time.

use std::cmp::Ordering;

use crate::cancel::pace;
use crate::error::Result;

/// The most elements that are sorted without a look.
const AT_ONCE: usize = 1 << 14;

/// The elementary operations that putting an element in order is worth.
const OPERATIONS: usize = 16;

/// Sorts by an order in which no two elements are equal, or equal ones are the same. Fails if the
/// run should stop, and leaves the elements in any order then.
pub(crate) fn sort_by<T>(
    items: &mut [T],
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    pace(items.len().saturating_mul(OPERATIONS))?;
    if items.len() <= AT_ONCE {
        items.sort_unstable_by(compare);
        return Ok(());
    }
    let middle = items.len() / 2;
    let (lower, _, upper) = items.select_nth_unstable_by(middle, &mut *compare);
    sort_by(lower, compare)?;
    sort_by(upper, compare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_elements_are_sorted_in_parts() {
        for n in [0, 1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE + 3] {
            let mut items: Vec<u64> =
                (0..n as u64).map(|i| i.wrapping_mul(0x9E37_79B9_97F4_A7C1)).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            sort_by(&mut items, &mut Ord::cmp).unwrap();
            assert_eq!(items, expected);
        }
    }

    #[test]
    fn a_run_that_should_stop_sorts_no_further() {
        let stop = pool::Stop::at_look(1);
        let _watch = stop.watch();
        let mut items: Vec<u32> = (0..1 << 20).rev().collect();
        assert!(sort_by(&mut items, &mut Ord::cmp).is_err());
        assert_eq!(stop.n_looks(), 2);
    }
}
