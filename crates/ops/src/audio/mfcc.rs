//! `Mfcc`: the coefficients that describe the sound of speech.
//!
//! Follows `mfcc.cc`, `mfcc_mel_filterbank.cc` and `mfcc_dct.cc` of TensorFlow.

use std::f64::consts::PI;

use crate::prelude::*;

/// Below this, a channel counts as silent.
const FLOOR: f64 = 1e-12;

/// The most channels and coefficients.
const COUNT_MAX: usize = 1 << 16;

pub(super) const DEF: OpDef = OpDef::pure("Mfcc", |attrs| {
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
        let bank = Bank::new(self, n_bins, rate as f64)?;
        let shape = [n_signals, n_frames, self.n_coefficients].map(|dim| dim as i64);
        let mut out = ctx.output(0, DType::F32, &Shape::checked(shape)?)?;
        let n = self.n_channels as f64;
        let cosine =
            |i: usize, j: usize| (2.0 / n).sqrt() * (i as f64 * PI / n * (j as f64 + 0.5)).cos();
        let frames = input.as_slice::<f32>().chunks_exact(n_bins);
        let rows = out.as_mut_slice::<f32>().chunks_exact_mut(self.n_coefficients);
        for (frame, row) in frames.zip(rows) {
            // TensorFlow leaves a frame that is too short as it is.
            if n_bins <= bank.last {
                row.fill(0.0);
                continue;
            }
            let mut channels = bank.channels(frame);
            channels.iter_mut().for_each(|x| *x = if *x < FLOOR { FLOOR } else { *x }.ln());
            for (i, out) in row.iter_mut().enumerate() {
                // Only as many cosines as there are channels differ from zero.
                let terms = channels.iter().enumerate().map(|(j, x)| cosine(i, j) * x);
                *out = if i < self.n_channels { terms.sum::<f64>() as f32 } else { 0.0 };
            }
        }
        Ok(())
    }
}

/// Triangles on the mel scale, through which frequencies fall into channels.
struct Bank {
    n_channels: usize,
    first: usize,
    last: usize,
    /// The channel below each bin; none below the first.
    below: Vec<Option<usize>>,
    /// The part of each bin that falls into the channel below.
    weights: Vec<f64>,
}

impl Bank {
    fn new(mfcc: &Mfcc, n_bins: usize, rate: f64) -> Result<Self> {
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
        let centers: Vec<f64> =
            (0..=mfcc.n_channels).map(|i| low + spacing * (i + 1) as f64).collect();
        let hertz = 0.5 * rate / (n_bins - 1) as f64;
        let (first, last) = ((1.5 + mfcc.lower / hertz) as usize, (mfcc.upper / hertz) as usize);
        let (mut below, mut weights, mut channel) = (Vec::new(), Vec::new(), 0);
        for bin in 0..n_bins {
            let at = mel(bin as f64 * hertz);
            if !(first..=last).contains(&bin) {
                below.push(None);
                weights.push(0.0);
                continue;
            }
            while channel < mfcc.n_channels && centers[channel] < at {
                channel += 1;
            }
            let under = channel.checked_sub(1);
            below.push(under);
            weights.push(match under {
                Some(under) => (centers[under + 1] - at) / (centers[under + 1] - centers[under]),
                None => (centers[0] - at) / (centers[0] - low),
            });
        }
        Ok(Self { n_channels: mfcc.n_channels, first, last, below, weights })
    }

    fn channels(&self, frame: &[f32]) -> Vec<f64> {
        let mut channels = vec![0.0; self.n_channels];
        let bins = self.first..self.last.saturating_add(1).min(frame.len());
        for bin in bins {
            let value = f64::from(frame[bin]).sqrt();
            let part = value * self.weights[bin];
            let above = match self.below[bin] {
                Some(below) => {
                    channels[below] += part;
                    below + 1
                }
                None => 0,
            };
            if let Some(channel) = channels.get_mut(above) {
                *channel += value - part;
            }
        }
        channels
    }
}

/// A frequency on the scale of what is heard as equally far apart.
fn mel(hertz: f64) -> f64 {
    1127.0 * (hertz / 700.0).ln_1p()
}
