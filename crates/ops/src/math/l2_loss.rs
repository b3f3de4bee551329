//! `L2Loss`: half of the sum of squares.

use super::reduce::fold::{Add, Join, Term};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("L2Loss", RowRule::Mixed, |_| Ok(Box::new(L2Loss)));

struct L2Loss;

impl Op for L2Loss {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![Spec::scalar(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let mut out = ctx.output(0, x.dtype(), &Shape::scalar())?;
        for_float!(x.dtype(), T => {
            let x: &[T] = x.as_slice();
            out.as_mut_slice::<T>()[0] = <T as Term>::round(half_of_squares::<T>(x));
        });
        Ok(())
    }
}

/// Sums block by block, so that long sums stay precise.
fn half_of_squares<T: Term>(x: &[T]) -> T::Sum
where
    T::Sum: num_traits::Float,
    Add: Join<T::Sum>,
{
    let square = |x: &T| x.widen() * x.widen();
    let zero = <Add as Join<T::Sum>>::NEUTRAL;
    let block = |x: &[T]| x.iter().map(square).fold(zero, |sum, x| sum + x);
    let sum = paced(x.chunks(256), 256).map(block).fold(zero, |sum, block| sum + block);
    let one = <T::Sum as num_traits::One>::one();
    sum / (one + one)
}
