//! Running sums, products and logarithms of sums along an axis.

use kernels::{Rounded, approx};
use num_complex::Complex;

use super::arg::axis_value;
use super::reduce::fold::{Add, Join, Multiply, Term};
use crate::prelude::*;

pub(super) const CUMSUM: OpDef =
    OpDef::pure("Cumsum", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, CumulativeWay::Sum)
    });
pub(super) const CUMPROD: OpDef =
    OpDef::pure("Cumprod", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, CumulativeWay::Product)
    });
pub(super) const CUMULATIVE_LOGSUMEXP: OpDef =
    OpDef::pure("CumulativeLogsumexp", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, CumulativeWay::LogSumExp)
    });

#[derive(Clone, Copy)]
enum CumulativeWay {
    Sum,
    Product,
    LogSumExp,
}

struct CumulativeScan {
    way: CumulativeWay,
    /// `true` if an element leaves out itself.
    exclusive: bool,
    reverse: bool,
}

fn build(attrs: &Attrs<'_>, way: CumulativeWay) -> Result<Box<dyn Op>> {
    let exclusive = attrs.bool_or("exclusive", false)?;
    Ok(Box::new(CumulativeScan { way, exclusive, reverse: attrs.bool_or("reverse", false)? }))
}

impl Op for CumulativeScan {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, axis] = arity(inputs)?;
        axis.require_rank(0)?;
        if let (Some(rank), Some(&[axis])) = (x.rank(), axis.ints().as_deref()) {
            checked_axis(axis, rank)?;
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let axis = checked_axis(axis_value(ctx.input(1))?, x.shape().rank())?;
        let n = x.shape()[axis];
        let inner: usize = x.shape()[axis + 1..].iter().product();
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        if let CumulativeWay::LogSumExp = self.way {
            for_float!(x.dtype(), T => {
                self.scan::<T, LogSumExp>(x.as_slice(), out.as_mut_slice(), (n, inner), scratch)?;
            });
            return Ok(());
        }
        match (x.dtype(), self.way) {
            (DType::Complex64, CumulativeWay::Sum) => self.scan::<Complex<f32>, Add>(
                x.as_slice(),
                out.as_mut_slice(),
                (n, inner),
                scratch,
            ),
            (DType::Complex64, _) => self.scan::<Complex<f32>, Multiply>(
                x.as_slice(),
                out.as_mut_slice(),
                (n, inner),
                scratch,
            ),
            (DType::Complex128, CumulativeWay::Sum) => self.scan::<Complex<f64>, Add>(
                x.as_slice(),
                out.as_mut_slice(),
                (n, inner),
                scratch,
            ),
            (DType::Complex128, _) => self.scan::<Complex<f64>, Multiply>(
                x.as_slice(),
                out.as_mut_slice(),
                (n, inner),
                scratch,
            ),
            (dtype, CumulativeWay::Sum) => for_number!(dtype, T => {
                self.scan::<T, Add>(x.as_slice(), out.as_mut_slice(), (n, inner), scratch)
            }),
            (dtype, _) => for_number!(dtype, T => {
                self.scan::<T, Multiply>(x.as_slice(), out.as_mut_slice(), (n, inner), scratch)
            }),
        }
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (Some(shape), Some(&[axis])) = (outputs[0].shape(), inputs[1].ints().as_deref()) else {
            return 0;
        };
        let Ok(axis) = checked_axis(axis, shape.rank()) else { return 0 };
        let inner: usize = shape[axis + 1..].iter().product();
        // Sums of 16-bit floats are 32 bits wide.
        Scratch::bytes_of::<u8>(inner * inputs[0].dtype.size().max(4))
    }
}

impl CumulativeScan {
    /// Scans `n` rows of `inner` elements in each part.
    fn scan<T: Term, J: Join<T::Sum>>(
        &self,
        x: &[T],
        out: &mut [T],
        (n, inner): (usize, usize),
        mut scratch: Scratch<'_>,
    ) -> Result<()> {
        if x.is_empty() {
            return Ok(());
        }
        let mut sums = scratch.part::<T::Sum>(inner)?;
        let parts = x.chunks_exact(n * inner).zip(out.chunks_exact_mut(n * inner));
        for (x, out) in parts {
            sums.fill(J::NEUTRAL);
            for i in 0..n {
                pace(4 * inner)?;
                let at = if self.reverse { n - 1 - i } else { i } * inner;
                let rows = x[at..at + inner].iter().zip(&mut out[at..at + inner]);
                for ((x, out), sum) in rows.zip(sums.iter_mut()) {
                    let next = J::join(*sum, x.widen());
                    *out = T::round(if self.exclusive { *sum } else { next });
                    *sum = next;
                }
            }
        }
        Ok(())
    }
}

/// `log(exp(a) + exp(b))`.
struct LogSumExp;

impl Join<f32> for LogSumExp {
    const NEUTRAL: f32 = f32::NEG_INFINITY;

    fn join(a: f32, b: f32) -> f32 {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        if low == f32::NEG_INFINITY {
            high
        } else {
            high + approx::log1p::<Rounded>(approx::exp::<Rounded>(low - high))
        }
    }
}

impl Join<f64> for LogSumExp {
    const NEUTRAL: f64 = f64::NEG_INFINITY;

    fn join(a: f64, b: f64) -> f64 {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
    }
}

fn checked_axis(axis: i64, rank: usize) -> Result<usize> {
    normalise_axis(axis, rank).map_err(|_| {
        let low = -(rank as i64);
        Error::InvalidArgument(format!(
            "ScanOp: Expected scan axis in the range [{low}, {rank}), but got {axis}"
        ))
    })
}
