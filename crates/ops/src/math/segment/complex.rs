//! Sums, means and products of complex rows; they have no order.

use num_complex::Complex;
use num_traits::Float;

use super::{SegmentPlan, SegmentWay};
use crate::error::unsupported;
use crate::prelude::*;

/// Reduces rows by segment. Fails for what needs an order.
pub(super) fn reduce<F: Float>(
    plan: &SegmentPlan<'_>,
    way: SegmentWay,
    x: &[Complex<F>],
    (counts, out): (&mut [usize], &mut [Complex<F>]),
) -> Result<()> {
    let (zero, one) = (Complex::new(F::zero(), F::zero()), Complex::new(F::one(), F::zero()));
    let (start, join): (_, fn(Complex<F>, Complex<F>) -> Complex<F>) = match way {
        SegmentWay::Sum | SegmentWay::Mean | SegmentWay::SqrtN => (zero, |a, b| a + b),
        SegmentWay::Product => (one, |a, b| a * b),
        SegmentWay::Largest | SegmentWay::Smallest => {
            return unsupported!("complex numbers have no largest one");
        }
    };
    out.fill(start);
    for [row, segment] in plan.rows {
        pace(plan.width)?;
        counts[*segment] += 1;
        let out = &mut out[segment * plan.width..][..plan.width];
        let row = &x[row * plan.width..][..plan.width];
        out.iter_mut().zip(row).for_each(|(out, x)| *out = join(*out, *x));
    }
    if way == SegmentWay::Mean && plan.width > 0 {
        for (out, count) in out.chunks_exact_mut(plan.width).zip(counts) {
            let divisor = F::from((*count).max(1)).unwrap_or_else(F::one);
            out.iter_mut().for_each(|out| *out = *out / divisor);
        }
    }
    Ok(())
}
