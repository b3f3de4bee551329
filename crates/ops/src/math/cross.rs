//! `Cross`: the vector product of vectors of three elements.

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Cross", RowRule::Mixed, |_| Ok(Box::new(Cross)));

struct Cross;

impl Op for Cross {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        a.require_rank_at_least(1)?;
        if let (Some(x), Some(y)) = (a.shape(), b.shape()) {
            check(&x, &y)?;
        }
        Ok(vec![if a.shape().is_some() { a } else { b }.with_dtype(a.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0), ctx.input(1));
        check(a.shape(), b.shape())?;
        let mut out = ctx.output(0, a.dtype(), a.shape())?;
        match a.dtype() {
            dtype if dtype.is_float() => for_float!(dtype, T => {
                let (a, b) = (a.as_slice::<T>(), b.as_slice());
                cross(a, b, out.as_mut_slice(), |p, q, r, s| p * q - r * s);
            }),
            dtype => for_integer!(dtype, T => {
                let (a, b) = (a.as_slice::<T>(), b.as_slice());
                cross(a, b, out.as_mut_slice(), |p, q, r, s| {
                    p.wrapping_mul(q).wrapping_sub(r.wrapping_mul(s))
                });
            }),
        }
        Ok(())
    }
}

/// Writes the products, each element of which `minor` makes of two pairs of factors.
fn cross<T: Copy>(a: &[T], b: &[T], out: &mut [T], minor: impl Fn(T, T, T, T) -> T) {
    let pairs = a.chunks_exact(3).zip(b.chunks_exact(3));
    for ((a, b), out) in pairs.zip(out.chunks_exact_mut(3)) {
        if is_stopped(8) {
            return;
        }
        out[0] = minor(a[1], b[2], a[2], b[1]);
        out[1] = minor(a[2], b[0], a[0], b[2]);
        out[2] = minor(a[0], b[1], a[1], b[0]);
    }
}

fn check(a: &Shape, b: &Shape) -> Result<()> {
    if a != b {
        return invalid!("inputs {a} and {b} differ in shape");
    }
    if a.rank() == 0 || a.last_dim() != 3 {
        let text = format!("expected vectors of 3 elements along the last axis but got {a}");
        return Err(Error::FailedPrecondition(text));
    }
    Ok(())
}
