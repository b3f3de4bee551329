//! `AudioSpectrogram`: how strong each frequency is, over time.
//!
//! Follows `spectrogram.cc` and `spectrogram_op.cc` of TensorFlow.

use std::f64::consts::PI;

use num_complex::Complex;

use crate::linalg::fft::Line;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("AudioSpectrogram", RowRule::Mixed, |attrs| {
    let (window, stride) = (attrs.size("window_size")?, attrs.size("stride")?);
    if !(2..=1 << 24).contains(&window) || stride == 0 {
        return invalid!("window_size must be at least 2 and stride at least 1");
    }
    Ok(Box::new(Spectrogram {
        window,
        stride,
        squared: attrs.bool_or("magnitude_squared", false)?,
    }))
});

struct Spectrogram {
    window: usize,
    stride: usize,
    /// `true` if the squares of the magnitudes are given.
    squared: bool,
}

impl Spectrogram {
    fn n_frames(&self, n_samples: usize) -> usize {
        n_samples.checked_sub(self.window).map_or(0, |rest| 1 + rest / self.stride)
    }

    /// The length of a transform.
    fn length(&self) -> usize {
        self.window.next_power_of_two()
    }

    fn n_bins(&self) -> usize {
        1 + self.length() / 2
    }
}

impl Op for Spectrogram {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [audio] = arity(inputs)?;
        audio.require_rank(2)?;
        audio.require_dtype(DType::F32)?;
        let Some([samples, channels]) = audio.dims() else {
            return Ok(vec![Spec::new(
                DType::F32,
                [Dim::Unknown, Dim::Unknown, Dim::of(self.n_bins())],
            )]);
        };
        let frames = samples.size().map_or(Dim::Unknown, |n| Dim::of(self.n_frames(n)));
        Ok(vec![Spec::new(DType::F32, [channels.clone(), frames, Dim::of(self.n_bins())])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let &[n_samples, n_channels] = input.shape().dims() else {
            return invalid!("input must be 2-dimensional, got {}", input.shape());
        };
        let audio = input.as_slice::<f32>();
        let (n_frames, n_bins) = (self.n_frames(n_samples), self.n_bins());
        let dims = [n_channels, n_frames, n_bins].map(|dim| dim as i64);
        let mut scratch = ctx.scratch();
        let mut out = ctx.output(0, DType::F32, &Shape::checked(dims)?)?;
        let angle = 2.0 * PI / self.window as f64;
        let mut hann = scratch.part(self.window)?;
        let weight = |i: usize| 0.5 - 0.5 * (angle * i as f64).cos();
        hann.iter_mut().enumerate().for_each(|(i, to)| *to = weight(i));
        let mut values = scratch.part(self.length())?;
        let mut line = Line::new(self.length(), false, &mut scratch)?;
        for (row, out) in out.as_mut_slice::<f32>().chunks_exact_mut(n_bins).enumerate() {
            pace(64 * n_bins)?;
            let (channel, start) = (row / n_frames, row % n_frames * self.stride);
            values.fill(Complex::new(0.0, 0.0));
            for (i, (value, weight)) in values.iter_mut().zip(hann.iter()).enumerate() {
                value.re = f64::from(audio[(start + i) * n_channels + channel]) * weight;
            }
            line.transform(&mut values);
            for (out, value) in out.iter_mut().zip(values.iter()) {
                let square = value.norm_sqr() as f32;
                *out = if self.squared { square } else { square.sqrt() };
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        let values = Scratch::bytes_of::<Complex<f64>>(self.length());
        Scratch::bytes_of::<f64>(self.window) + values + Line::bytes(self.length())
    }
}
