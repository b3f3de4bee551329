//! `ClipByValue`: elements kept between two bounds.

use super::map::CHEAP;
use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("ClipByValue", RowRule::Elementwise, |_| Ok(Box::new(Clip)));

/// Each bound is a scalar or has the shape of the input.
struct Clip;

impl Op for Clip {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, low, high] = arity(inputs)?;
        for bound in [low, high] {
            if let (Some(x), Some(bound)) = (x.shape(), bound.shape()) {
                check(&x, &bound)?;
            }
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let pool = ctx.env().pool;
        let (x, low, high) = (ctx.input(0), ctx.input(1), ctx.input(2));
        check(x.shape(), low.shape())?;
        check(x.shape(), high.shape())?;
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        for_number!(x.dtype(), T => {
            let (x, low, high) = (x.as_slice::<T>(), low.as_slice(), high.as_slice());
            in_pieces(pool, out.as_mut_slice::<T>(), CHEAP, |at, out| {
                let range = at..at + out.len();
                clip(&x[range.clone()], part(low, range.clone()), part(high, range), out);
            });
        });
        Ok(())
    }
}

/// The part of a bound that belongs to a part of the input.
fn part<T>(bound: &[T], range: std::ops::Range<usize>) -> &[T] {
    if bound.len() == 1 { bound } else { &bound[range] }
}

fn clip<T: Copy + PartialOrd>(x: &[T], low: &[T], high: &[T], out: &mut [T]) {
    if let ([low], [high]) = (low, high) {
        x.iter().zip(out).for_each(|(x, out)| *out = between(*x, *low, *high));
        return;
    }
    let (low, high) = (low.iter().cycle(), high.iter().cycle());
    for (((x, out), low), high) in x.iter().zip(out).zip(low).zip(high) {
        *out = between(*x, *low, *high);
    }
}

/// The upper bound first: if the bounds cross, the lower one wins. NaN stays NaN.
fn between<T: Copy + PartialOrd>(x: T, low: T, high: T) -> T {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

fn check(x: &Shape, bound: &Shape) -> Result<()> {
    if bound.rank() != 0 && bound != x {
        return invalid!("a bound of shape {bound} is neither a scalar nor of shape {x}");
    }
    Ok(())
}
