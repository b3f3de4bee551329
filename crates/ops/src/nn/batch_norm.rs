//! `FusedBatchNorm`, `V2` and `V3`: each channel shifted and scaled by its mean and variance.
//!
//! Follows `fused_batch_norm_op.cc`.

use super::dtypes::{narrow, widen};
use super::window::Layout;
use crate::error::unimplemented;
use crate::prelude::*;

pub(super) const V1: OpDef = OpDef::pure("FusedBatchNorm", |attrs| build(attrs, 5));
pub(super) const V2: OpDef = OpDef::pure("FusedBatchNormV2", |attrs| build(attrs, 5));
pub(super) const V3: OpDef = OpDef::pure("FusedBatchNormV3", |attrs| build(attrs, 6));

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

/// What stands for each channel.
struct Moments {
    mean: Vec<f32>,
    variance: Vec<f32>,
}

impl BatchNorm {
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
            // When training, the running mean and variance may be empty.
            if size.differs(&channels) && !(self.training && i >= 2 && size.known() == Some(0)) {
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
        // Nothing is kept of moments that are replaced.
        let may_lack = self.training && self.average_factor == 1.;
        let wanted = |i: usize| if may_lack && i >= 2 { vec![n, 0] } else { vec![n] };
        for (i, input) in [scale, offset, mean, variance].iter().enumerate() {
            if input.dtype() != DType::F32 || !wanted(i).contains(&input.n_elements()) {
                return invalid!("{} does not fit {n} channels", input.shape());
            }
        }
        let Some(wide) = widen(&x) else {
            return unimplemented!("dtype {} is not supported here", x.dtype());
        };
        let running =
            Moments { mean: mean.as_slice().to_vec(), variance: variance.as_slice().to_vec() };
        let (used, [first, second, third, fourth]) = match self.training {
            true => {
                let (used, reported) = self.batch_moments(&wide, n, inner, &running);
                let kept =
                    [reported.mean, reported.variance, used.mean.clone(), used.variance.clone()];
                (used, kept)
            }
            // What only training needs is zero, and there are no moments of nothing.
            false => {
                let seen = |x: &[f32]| if wide.is_empty() { vec![f32::NAN; n] } else { x.to_vec() };
                let kept = [seen(&running.mean), seen(&running.variance), vec![0.; n], vec![0.; n]];
                (running, kept)
            }
        };
        let vector = Shape::of(&[n]);
        for (i, values) in [first, second, third, fourth].iter().enumerate() {
            ctx.output(i + 1, DType::F32, &vector)?.as_mut_slice().copy_from_slice(values);
        }
        if self.n_outputs == 6 {
            ctx.output(5, DType::F32, &Shape::scalar())?.as_mut_slice::<f32>().fill(0.);
        }
        let factors: Vec<[f32; 3]> = (0..n)
            .map(|c| {
                let factor = scale.as_slice::<f32>()[c] / (used.variance[c] + self.epsilon).sqrt();
                [used.mean[c], factor, offset.as_slice::<f32>()[c]]
            })
            .collect();
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        normalise(&wide, &factors, inner, &mut out)
    }
}

impl BatchNorm {
    /// The moments that the batch is normalised by, and those that are reported.
    fn batch_moments(
        &self,
        x: &[f32],
        channels: usize,
        inner: usize,
        running: &Moments,
    ) -> (Moments, Moments) {
        let mut sums = vec![(0f64, 0f64); channels];
        let rows = || x.chunks_exact(inner.max(1)).enumerate();
        for (i, row) in rows() {
            sums[i % channels].0 += row.iter().map(|x| f64::from(*x)).sum::<f64>();
        }
        let count = (x.len() / channels.max(1)) as f64;
        sums.iter_mut().for_each(|sum| sum.0 /= count);
        for (i, row) in rows() {
            let (mean, squares) = &mut sums[i % channels];
            *squares += row.iter().map(|x| (f64::from(*x) - *mean).powi(2)).sum::<f64>();
        }
        let mean: Vec<f32> = sums.iter().map(|sum| sum.0 as f32).collect();
        let variance = |divisor: f64| sums.iter().map(|sum| (sum.1 / divisor) as f32).collect();
        let unbiased: Vec<f32> = variance((count - 1.).max(1.));
        let used = Moments { mean: mean.clone(), variance: variance(count) };
        let mix = |old: &[f32], new: &[f32]| -> Vec<f32> {
            if self.average_factor == 1. || old.is_empty() {
                return new.to_vec();
            }
            let keep = 1. - self.average_factor;
            old.iter().zip(new).map(|(o, n)| keep * o + self.average_factor * n).collect()
        };
        let reported = Moments {
            mean: mix(&running.mean, &mean),
            variance: mix(&running.variance, &unbiased),
        };
        (used, reported)
    }
}

/// Writes `(x - mean) * factor + offset`, each run of `inner` elements being of the next channel.
fn normalise(x: &[f32], factors: &[[f32; 3]], inner: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let mut result = vec![0f32; x.len()];
    let n = (factors.len() * inner).max(1);
    for (x, out) in x.chunks_exact(n).zip(result.chunks_exact_mut(n)) {
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
    narrow(&result, out)
}
