//! The transforms of libjpeg that give fewer samples than a block has coefficients (`jidctred.c`).
//!
//! They are sums of the lower frequencies, with thirteen bits of fraction; the samples are left in
//! the upper left corner of the block.

/// The weights of the odd coefficients 1, 3, 5 and 7, for the inner and the outer pair of samples.
const INNER: [i64; 4] = [8697, -17799, 11893, -1730];
const OUTER: [i64; 4] = [20995, 7373, -4926, -4176];
/// The same for two samples.
const PAIR: [i64; 4] = [29692, -10426, 6967, -5906];

/// Four by four samples.
pub(super) fn four(values: &mut [i32; 64]) {
    both_ways(values, 4, 12, 19, |d| {
        let even = (d[2] * 15137 - d[6] * 6270, d[0] << 14);
        let (low, high) = (even.1 + even.0, even.1 - even.0);
        let (inner, outer) = (odd(d, INNER), odd(d, OUTER));
        [low + outer, high + inner, high - inner, low - outer]
    });
}

/// Two by two samples.
pub(super) fn two(values: &mut [i32; 64]) {
    both_ways(values, 2, 13, 20, |d| {
        let (even, odd) = (d[0] << 15, odd(d, PAIR));
        [even + odd, even - odd, 0, 0]
    });
}

fn odd(d: [i64; 8], weights: [i64; 4]) -> i64 {
    weights.iter().enumerate().map(|(i, weight)| weight * d[2 * i + 1]).sum()
}

/// Columns, then the first `size` rows; each sum is rounded at a bit of its own.
fn both_ways(
    values: &mut [i32; 64],
    size: usize,
    first: u32,
    second: u32,
    eight: impl Fn([i64; 8]) -> [i64; 4],
) {
    let rounded = |v: i64, shift: u32| ((v + (1 << (shift - 1))) >> shift) as i32;
    for x in 0..8 {
        let out = eight(std::array::from_fn(|y| i64::from(values[y * 8 + x])));
        for (y, v) in out.iter().take(size).enumerate() {
            values[y * 8 + x] = rounded(*v, first);
        }
    }
    for row in values.as_chunks_mut::<8>().0.iter_mut().take(size) {
        let out = eight(std::array::from_fn(|x| i64::from(row[x])));
        row.iter_mut().zip(out).take(size).for_each(|(to, v)| *to = rounded(v, second));
    }
}
