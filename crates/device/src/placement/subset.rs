//! The subset of some sizes with the largest sum that does not exceed a capacity.

/// Into how many parts a capacity is divided: sizes are rounded up to these.
const N_PARTS: usize = 8192;

/// Further sizes are left out, which bounds the memory taken.
const N_SIZES_MAX: usize = 4096;

const WORDS: usize = N_PARTS / 64 + 1;

/// Indices of sizes whose sum is at most `capacity` and nearly as large as possible: rounding loses
/// less than one part in 8192 for each. Takes a kilobyte and a few microseconds for each size.
pub(super) fn fullest(sizes: &[u64], capacity: u64) -> Vec<usize> {
    let sizes = &sizes[..sizes.len().min(N_SIZES_MAX)];
    let part = capacity.div_ceil(N_PARTS as u64).max(1);
    let parts = |bytes: u64| usize::try_from(bytes.div_ceil(part)).unwrap_or(usize::MAX);
    let limit = usize::try_from(capacity / part).expect("at most as many as there are parts");
    // After each size, which sums can be reached; bit 0 is the empty one.
    let mut reached = vec![[0u64; WORDS]];
    reached[0][0] = 1;
    for size in sizes {
        let last = reached[reached.len() - 1];
        let mut next = last;
        if parts(*size) <= limit {
            or_shifted(&mut next, &last, parts(*size));
        }
        reached.push(next);
    }
    let is_reached = |at: usize, sum: usize| reached[at][sum / 64] >> (sum % 64) & 1 == 1;
    let mut sum = (0..=limit).rev().find(|sum| is_reached(sizes.len(), *sum)).unwrap_or(0);
    let mut chosen = Vec::new();
    for at in (0..sizes.len()).rev() {
        if !is_reached(at, sum) {
            chosen.push(at);
            sum -= parts(sizes[at]);
        }
    }
    assert_eq!(sum, 0, "the way back ends where it began");
    chosen
}

/// Adds the sums of `from` that are larger by `shift`, as far as they are kept.
fn or_shifted(to: &mut [u64; WORDS], from: &[u64; WORDS], shift: usize) {
    let (words, bits) = (shift / 64, shift % 64);
    for at in words..WORDS {
        let low = from[at - words] << bits;
        let high = match at > words && bits > 0 {
            true => from[at - words - 1] >> (64 - bits),
            false => 0,
        };
        to[at] |= low | high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[u64], capacity: u64, expected: u64) {
        let sum: u64 = fullest(sizes, capacity).into_iter().map(|at| sizes[at]).sum();
        assert_eq!(sum, expected, "{sizes:?} in {capacity}");
    }

    #[test]
    fn the_fullest_subset_is_found() {
        check(&[], 10, 0);
        check(&[7, 5, 4], 9, 9);
        check(&[7, 5, 4], 10, 9);
        check(&[7, 5, 4], 12, 12);
        check(&[7, 5, 4], 100, 16);
        check(&[7, 5, 4], 3, 0);
        check(&[7, 5, 4], 0, 0);
        check(&[64, 64, 65, 63], 128, 128);
        check(&[0, 3], 2, 0);
    }

    #[test]
    fn what_is_found_never_exceeds_a_large_capacity() {
        let sizes: Vec<u64> = (1..200).map(|i| i * 1_234_567_891).collect();
        let capacity = 80 << 30;
        let sum: u64 = fullest(&sizes, capacity).into_iter().map(|at| sizes[at]).sum();
        assert!(sum <= capacity && sum >= capacity / 100 * 99, "{sum}");
        assert!(fullest(&[u64::MAX, 5], u64::MAX).len() == 1);
    }
}
