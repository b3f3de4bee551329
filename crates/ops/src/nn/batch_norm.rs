//! `FusedBatchNorm`, `V2` and `V3`: each channel shifted and scaled by its mean and variance.
//!
//! Follows `fused_batch_norm_op.cc`.

use super::dtypes::{Floats, narrow};
use super::window::Layout;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const V1: OpDef =
    OpDef::pure("FusedBatchNorm", RowRule::BatchNorm, |attrs| build(attrs, 5));
pub(super) const V2: OpDef =
    OpDef::pure("FusedBatchNormV2", RowRule::BatchNorm, |attrs| build(attrs, 5));
pub(super) const V3: OpDef =
    OpDef::pure("FusedBatchNormV3", RowRule::BatchNorm, |attrs| build(attrs, 6));

fn build(attrs: &Attrs<'_>, n_outputs: usize) -> Result<Box<dyn Op>> {
    let channels_first = match attrs.str_or("data_format", "NHWC")? {
        "NHWC" | "NDHWC" => false,
        "NCHW" | "NCDHW" => true,
        name => return invalid!("data format {name} is not known here"),
    };
    Ok(Box::new(BatchNorm {
        epsilon: attrs.float_or("epsilon", 1e-4)?,
        training: attrs.bool_or("is_training", true)?,
        average_factor: attrs.float_or("exponential_avg_factor", 1.)?,
        channels_first,
        n_outputs,
    }))
}

struct BatchNorm {
    epsilon: f32,
    training: bool,
    average_factor: f32,
    channels_first: bool,
    n_outputs: usize,
}

impl BatchNorm {
    /// Returns whether nothing is kept of the running mean and variance, whatever they are.
    fn replaces(&self) -> bool {
        self.training && self.average_factor == 1.
    }

    fn channel(&self, rank: usize) -> usize {
        let layout = Layout { n_axes: rank - 2, channels_first: self.channels_first };
        layout.channel()
    }
}

impl Op for BatchNorm {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, others @ ..] = arity::<5>(inputs)?;
        if x.rank().is_some_and(|rank| rank != 4 && rank != 5) {
            return invalid!("expected rank 4 or 5 but got {x}");
        }
        let mut channels =
            x.dims().map_or(Dim::Unknown, |dims| dims[self.channel(dims.len())].clone());
        for (i, other) in others.iter().enumerate() {
            other.require_rank(1)?;
            let size = other.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
            if size.differs(&channels) && !(self.replaces() && i >= 2) {
                return invalid!("{other} does not fit {channels} channels of {x}");
            }
            if channels == Dim::Unknown {
                channels = size;
            }
        }
        let mut outputs = vec![x.with_dtype(x.dtype)];
        outputs.extend((1..5).map(|_| Spec::new(DType::F32, [channels.clone()])));
        if self.n_outputs == 6 {
            outputs.push(Spec::scalar(DType::F32));
        }
        Ok(outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        if !matches!(x.shape().rank(), 4 | 5) {
            return invalid!("expected rank 4 or 5 but got {}", x.shape());
        }
        let channel = self.channel(x.shape().rank());
        let n = x.shape()[channel];
        let inner: usize = x.shape()[channel + 1..].iter().product();
        let [scale, offset, mean, variance] = std::array::from_fn(|i| ctx.input(i + 1));
        for (i, input) in [scale, offset, mean, variance].iter().enumerate() {
            let is_needed = i < 2 || !self.replaces();
            if input.dtype() != DType::F32 || (is_needed && input.n_elements() != n) {
                return invalid!("{} does not fit {n} channels", input.shape());
            }
        }
        let mut scratch = ctx.scratch();
        let Some(wide) = Floats::of(&x, &mut scratch)? else {
            return unsupported!("dtype {} is not supported here", x.dtype());
        };
        let running = (mean.as_slice::<f32>(), variance.as_slice::<f32>());
        let mut factors = scratch.part::<[f32; 3]>(n)?;
        let factor = |c: usize, mean: f32, variance: f32| {
            let factor = scale.as_slice::<f32>()[c] / (variance + self.epsilon).sqrt();
            [mean, factor, offset.as_slice::<f32>()[c]]
        };
        if self.training {
            let mut sums = scratch.part(n)?;
            let moments = BatchNormMoments::of(&wide, inner, &mut sums);
            let (mean, variance) = (|c: usize| moments.mean(c), |c: usize| moments.variance(c));
            for (c, to) in factors.iter_mut().enumerate() {
                *to = factor(c, mean(c), variance(c));
            }
            let running_mean = |c: usize| self.mix(running.0, c, mean(c));
            let running_variance = |c: usize| self.mix(running.1, c, moments.unbiased(c));
            self.report(ctx, n, [&running_mean, &running_variance, &mean, &variance])?;
        } else {
            for (c, to) in factors.iter_mut().enumerate() {
                *to = factor(c, running.0[c], running.1[c]);
            }
            // What only training needs is zero, and there are no moments of nothing.
            let seen = |x: f32| if wide.is_empty() { f32::NAN } else { x };
            let (mean, variance) = (|c: usize| seen(running.0[c]), |c: usize| seen(running.1[c]));
            self.report(ctx, n, [&mean, &variance, &|_| 0., &|_| 0.])?;
        }
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        if x.dtype() == DType::F32 {
            normalise(&wide, &factors, inner, out.as_mut_slice());
            return Ok(());
        }
        let mut result = scratch.part(wide.len())?;
        normalise(&wide, &factors, inner, &mut result);
        narrow(&result, &mut out)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        // The channels are those of the moments.
        let sums = if self.training { Scratch::bytes_for::<[f64; 2]>(&outputs[1]) } else { 0 };
        2 * Floats::bytes(&inputs[0]) + Scratch::bytes_for::<[f32; 3]>(&outputs[1]) + sums
    }
}

impl BatchNorm {
    /// The running moment of channel `c` after a batch has shown another one.
    fn mix(&self, old: &[f32], c: usize, new: f32) -> f32 {
        if self.replaces() {
            return new;
        }
        let keep = 1. - self.average_factor;
        keep * old[c] + self.average_factor * new
    }

    /// Writes the outputs behind the first, by channel.
    fn report(
        &self,
        ctx: &mut Ctx<'_>,
        n: usize,
        values: [&dyn Fn(usize) -> f32; 4],
    ) -> Result<()> {
        let vector = Shape::of(&[n]);
        for (i, value) in values.iter().enumerate() {
            let mut out = ctx.output(i + 1, DType::F32, &vector)?;
            let out = out.as_mut_slice::<f32>().iter_mut().enumerate();
            out.for_each(|(c, out)| *out = value(c));
        }
        if self.n_outputs == 6 {
            ctx.output(5, DType::F32, &Shape::scalar())?.as_mut_slice::<f32>().fill(0.);
        }
        Ok(())
    }
}

/// The moments of a batch.
struct BatchNormMoments<'a> {
    /// The mean of each channel, and the sum of the squared distances from it.
    sums: &'a [[f64; 2]],
    /// The elements of a channel.
    count: f64,
}

impl<'a> BatchNormMoments<'a> {
    /// The moments of elements, each run of `inner` being of the next channel.
    fn of(x: &[f32], inner: usize, sums: &'a mut [[f64; 2]]) -> Self {
        let channels = sums.len();
        sums.fill([0.; 2]);
        let rows = || x.chunks_exact(inner.max(1)).enumerate();
        for (i, row) in rows() {
            if is_stopped(row.len()) {
                break;
            }
            sums[i % channels][0] += row.iter().map(|x| f64::from(*x)).sum::<f64>();
        }
        let count = (x.len() / channels.max(1)) as f64;
        sums.iter_mut().for_each(|sum| sum[0] /= count);
        for (i, row) in rows() {
            if is_stopped(row.len()) {
                break;
            }
            let [mean, squares] = &mut sums[i % channels];
            *squares += row.iter().map(|x| (f64::from(*x) - *mean).powi(2)).sum::<f64>();
        }
        Self { sums, count }
    }

    fn mean(&self, c: usize) -> f32 {
        self.sums[c][0] as f32
    }

    fn variance(&self, c: usize) -> f32 {
        (self.sums[c][1] / self.count) as f32
    }

    fn unbiased(&self, c: usize) -> f32 {
        if self.count == 0. {
            return f32::NAN;
        }
        (self.sums[c][1] / (self.count - 1.).max(1.)) as f32
    }
}

/// Writes `(x - mean) * factor + offset`, each run of `inner` elements being of the next channel.
fn normalise(x: &[f32], factors: &[[f32; 3]], inner: usize, out: &mut [f32]) {
    let n = (factors.len() * inner).max(1);
    for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        if is_stopped(n) {
            return;
        }
        if inner == 1 {
            for ((x, out), [mean, factor, offset]) in x.iter().zip(out).zip(factors) {
                *out = (x - mean) * factor + offset;
            }
            continue;
        }
        let rows = x.chunks_exact(inner).zip(out.chunks_exact_mut(inner));
        for ((x, out), [mean, factor, offset]) in rows.zip(factors) {
            x.iter().zip(out).for_each(|(x, out)| *out = (x - mean) * factor + offset);
        }
    }
}
