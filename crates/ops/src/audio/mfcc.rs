//! `Mfcc`: the coefficients that describe the sound of speech.
//!
//! Follows `mfcc.cc`, `mfcc_mel_filterbank.cc` and `mfcc_dct.cc` of TensorFlow.

use std::f64::consts::PI;

use crate::prelude::*;

/// Below this, a channel counts as silent.
const FLOOR: f64 = 1e-12;

/// The most channels and coefficients.
const COUNT_MAX: usize = 1 << 16;

pub(super) const DEF: OpDef = OpDef::pure("Mfcc", RowRule::Mixed, |attrs| {
    let count = |name: &str, default: i64| size(attrs.int_or(name, default)?, name);
    let n_channels = count("filterbank_channel_count", 40)?;
    let n_coefficients = count("dct_coefficient_count", 13)?;
    if !(1..=COUNT_MAX).contains(&n_channels) || !(1..=COUNT_MAX).contains(&n_coefficients) {
        return invalid!("Mfcc needs between 1 and {COUNT_MAX} channels and coefficients");
    }
    Ok(Box::new(Mfcc {
        lower: f64::from(attrs.float_or("lower_frequency_limit", 20.0)?),
        upper: f64::from(attrs.float_or("upper_frequency_limit", 4000.0)?),
        n_channels,
        n_coefficients,
    }))
});

struct Mfcc {
    lower: f64,
    upper: f64,
    n_channels: usize,
    n_coefficients: usize,
}

impl Op for Mfcc {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [spectrogram, rate] = arity(inputs)?;
        spectrogram.require_rank(3)?;
        spectrogram.require_dtype(DType::F32)?;
        rate.require_rank(0)?;
        let mut dims = [Dim::Unknown, Dim::Unknown, Dim::of(self.n_coefficients)];
        if let Some([channels, frames, _]) = spectrogram.dims() {
            dims[..2].clone_from_slice(&[channels.clone(), frames.clone()]);
        }
        Ok(vec![Spec::new(DType::F32, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let rate = int(&ctx.input(1))?;
        let &[n_signals, n_frames, n_bins] = input.shape().dims() else {
            return invalid!("spectrogram must be 3-dimensional, got {}", input.shape());
        };
        let mut scratch = ctx.scratch();
        let bank = Bank::new(self, n_bins, rate as f64, &mut scratch)?;
        let mut channels = scratch.part(self.n_channels)?;
        let shape = [n_signals, n_frames, self.n_coefficients].map(|dim| dim as i64);
        let mut out = ctx.output(0, DType::F32, &Shape::checked(shape)?)?;
        let n = self.n_channels as f64;
        let cosine =
            |i: usize, j: usize| (2.0 / n).sqrt() * (i as f64 * PI / n * (j as f64 + 0.5)).cos();
        let frames = input.as_slice::<f32>().chunks_exact(n_bins);
        let rows = out.as_mut_slice::<f32>().chunks_exact_mut(self.n_coefficients);
        for (frame, row) in frames.zip(rows) {
            pace((1 << 14) + frame.len())?;
            // TensorFlow leaves a frame that is too short as it is.
            if n_bins <= bank.last {
                row.fill(0.0);
                continue;
            }
            bank.sort(frame, &mut channels);
            channels.iter_mut().for_each(|x| *x = if *x < FLOOR { FLOOR } else { *x }.ln());
            for (i, out) in row.iter_mut().enumerate() {
                // Only as many cosines as there are channels differ from zero.
                let terms = channels.iter().enumerate().map(|(j, x)| cosine(i, j) * x);
                *out = if i < self.n_channels { terms.sum::<f64>() as f32 } else { 0.0 };
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let n_bins = inputs[0].shape().map_or(0, |shape| shape.last_dim());
        let (numbers, n) = (Scratch::bytes_of::<f64>, self.n_channels);
        numbers(n + 1) + Scratch::bytes_of::<usize>(n_bins) + numbers(n_bins) + numbers(n)
    }
}

/// Triangles on the mel scale, through which frequencies fall into channels.
struct Bank<'a> {
    first: usize,
    last: usize,
    /// The channel above each bin.
    above: Part<'a, usize>,
    /// The part of each bin that falls into the channel below, if it is not below the first.
    weights: Part<'a, f64>,
}

impl<'a> Bank<'a> {
    fn new(mfcc: &Mfcc, n_bins: usize, rate: f64, scratch: &mut Scratch<'a>) -> Result<Self> {
        // The texts are TensorFlow's (`mfcc_mel_filterbank.cc`).
        if rate <= 0.0 || n_bins < 2 {
            return invalid!("Mfcc initialization failed for sample rate {rate}");
        }
        if mfcc.n_coefficients > mfcc.n_channels {
            return invalid!(
                "Mfcc initialization failed for channel count {n_bins}, sample rate {rate} and \
                 filterbank_channel_count {}",
                mfcc.n_channels
            );
        }
        if mfcc.lower < 0.0 || mfcc.upper <= mfcc.lower || !mfcc.upper.is_finite() {
            return invalid!("Mfcc initialization failed for these frequency limits");
        }
        let low = mel(mfcc.lower);
        let spacing = (mel(mfcc.upper) - low) / (mfcc.n_channels + 1) as f64;
        let mut centers = scratch.part(mfcc.n_channels + 1)?;
        let all = centers.iter_mut().enumerate();
        all.for_each(|(i, center)| *center = low + spacing * (i + 1) as f64);
        let hertz = 0.5 * rate / (n_bins - 1) as f64;
        let (first, last) = ((1.5 + mfcc.lower / hertz) as usize, (mfcc.upper / hertz) as usize);
        let (mut above, mut weights, mut channel) =
            (scratch.part(n_bins)?, scratch.part(n_bins)?, 0);
        for bin in 0..n_bins {
            let at = mel(bin as f64 * hertz);
            if !(first..=last).contains(&bin) {
                (above[bin], weights[bin]) = (0, 0.0);
                continue;
            }
            while channel < mfcc.n_channels && centers[channel] < at {
                channel += 1;
            }
            above[bin] = channel;
            let start = channel.checked_sub(1).map_or(low, |below| centers[below]);
            weights[bin] = (centers[channel] - at) / (centers[channel] - start);
        }
        Ok(Self { first, last, above, weights })
    }

    /// Writes what of a frame falls into each channel.
    fn sort(&self, frame: &[f32], channels: &mut [f64]) {
        channels.fill(0.0);
        let bins = self.first..self.last.saturating_add(1).min(frame.len());
        for bin in bins {
            let value = f64::from(frame[bin]).sqrt();
            let part = value * self.weights[bin];
            let above = self.above[bin];
            if let Some(below) = above.checked_sub(1) {
                channels[below] += part;
            }
            if let Some(channel) = channels.get_mut(above) {
                *channel += value - part;
            }
        }
    }
}

/// A frequency on the scale of what is heard as equally far apart.
fn mel(hertz: f64) -> f64 {
    1127.0 * (hertz / 700.0).ln_1p()
}
