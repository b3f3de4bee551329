//! Normalisation of one row, several elements at once.

use super::{Madd, kernels};

/// Takes mean and deviation out of a row, then scales and shifts each element.
///
/// # Panics
/// If the slices are not of one length.
pub fn normalise_row(row: &mut [f32], epsilon: f32, scale: &[f32], shift: &[f32]) {
    assert!(row.len() == scale.len() && row.len() == shift.len());
    let work = Normalise { row, epsilon, scale, shift };
    // SAFETY: this machine has the kernels.
    unsafe { (kernels().normalise)(work) };
}

/// A row, and what normalises it; all slices are of one length.
pub(super) struct Normalise<'a> {
    row: &'a mut [f32],
    epsilon: f32,
    scale: &'a [f32],
    shift: &'a [f32],
}

/// Normalises a row.
#[inline(always)]
pub(super) fn normalise<M: Madd>(work: Normalise<'_>) {
    let Normalise { row, epsilon, scale, shift } = work;
    let n = row.len() as f32;
    let mean = sum(row, |x| x) / n;
    let variance = sum(row, |x| (x - mean) * (x - mean)) / n;
    let factor = 1. / (variance + epsilon).sqrt();
    for ((x, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
        *x = M::madd((*x - mean) * factor, *scale, *shift);
    }
}

/// The number of sums that are taken side by side.
const LANES: usize = 32;

/// The sum of `f` of each element, in an order that depends on their number alone.
#[inline(always)]
fn sum(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            sums[i] += f(chunk[i]);
        }
    }
    let rest: f32 = rest.iter().map(|x| f(*x)).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_the_mean_and_deviation_that_are_asked_for() {
        for n in [1, 5, 32, 70, 384] {
            let mut row: Vec<f32> = (0..n).map(|i| (i * 37 % 19) as f32 + 100.).collect();
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / f64::from(n);
            let variance =
                row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / f64::from(n);
            let before = row.clone();
            let scale: Vec<f32> = (0..n).map(|i| i as f32 / 7. - 1.).collect();
            let shift: Vec<f32> = (0..n).map(|i| 2. - i as f32 / 3.).collect();
            normalise_row(&mut row, 1e-3, &scale, &shift);
            for i in 0..before.len() {
                let normal = (f64::from(before[i]) - mean) / (variance + 1e-3).sqrt();
                let want = normal * f64::from(scale[i]) + f64::from(shift[i]);
                assert!((f64::from(row[i]) - want).abs() < 1e-4 * want.abs().max(1.));
            }
        }
    }
}
