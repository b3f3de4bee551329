//! Softmax of one row, several elements at once.

use super::{Madd, approx, kernels};

/// Replaces a row by its softmax.
pub fn softmax_row(row: &mut [f32]) {
    // SAFETY: this machine has the kernels.
    unsafe { (kernels().softmax)(row) };
}

/// The number of sums that are taken side by side.
const LANES: usize = 16;

/// Replaces a row by its softmax.
///
/// Sums are taken lane by lane and the lanes added in order, so that they depend on the length of
/// the row alone.
#[inline(always)]
pub(super) fn softmax<M: Madd>(row: &mut [f32]) {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut most = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            most[i] = larger(most[i], chunk[i]);
        }
    }
    // Shifting by the maximum cancels out, and keeps `exp` from overflowing.
    let most = most.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| larger(a, *b));
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            chunk[i] = approx::exp::<M>(chunk[i] - most);
            sums[i] += chunk[i];
        }
    }
    rest.iter_mut().for_each(|x| *x = approx::exp::<M>(*x - most));
    let factor = 1. / sums.iter().chain(&*rest).sum::<f32>();
    row.iter_mut().for_each(|x| *x *= factor);
}

#[cfg(test)]
mod tests {
    use super::super::all;

    #[test]
    fn rows_of_any_length_sum_to_one() {
        for kernels in all() {
            for n in [0, 1, 2, 7, 8, 9, 31, 128, 200] {
                let row: Vec<f32> = (0..n).map(|i| (i * 37 % 19) as f32 - 100.).collect();
                let mut out = row.clone();
                // SAFETY: `all` lists what this machine can run.
                unsafe { (kernels.softmax)(&mut out) };
                let most = row.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
                for (x, got) in row.iter().zip(out) {
                    let want = f64::from(x - most).exp() / sum;
                    assert!((f64::from(got) - want).abs() < 1e-6, "{n}: {got} is not {want}");
                }
            }
        }
    }
}
