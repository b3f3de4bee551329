//! Rows of `f32` for softmax and its kin: the steps that are worth wide vectors.

use kernels::{Loop, Madd, approx, widest};

use super::reduce::fold::{Add, Larger, across};

/// The largest element; minus infinity of none, NaN if there is one.
pub(crate) fn max(x: &[f32]) -> f32 {
    across::<f32, Larger>(x)
}

/// The sum of the elements, in an order that depends on their number alone.
pub(crate) fn sum(x: &[f32]) -> f32 {
    across::<f32, Add>(x)
}

/// Writes `exp(x - shift)` of each element.
pub(crate) fn exp_minus(x: &[f32], shift: f32, out: &mut [f32]) {
    widest(ExpMinus { x, shift, out });
}

struct ExpMinus<'a> {
    x: &'a [f32],
    shift: f32,
    out: &'a mut [f32],
}

impl Loop for ExpMinus<'_> {
    #[inline(always)]
    fn run<M: Madd>(self) {
        for (out, x) in self.out.iter_mut().zip(self.x) {
            *out = approx::exp::<M>(*x - self.shift);
        }
    }
}
