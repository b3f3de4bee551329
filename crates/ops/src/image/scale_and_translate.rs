//! `ScaleAndTranslate`: images scaled and moved, with a choice of smoothing kernels.
//!
//! Follows `scale_and_translate_op.cc` and `sampling_kernels.h`.

use std::f32::consts::PI;

use num_traits::AsPrimitive;

use super::sampling::{normalise, weighted};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("ScaleAndTranslate", RowRule::Mixed, |attrs| {
    let kernel = match attrs.str_or("kernel_type", "lanczos3")? {
        "lanczos1" => Kernel::Lanczos(1.),
        "lanczos3" => Kernel::Lanczos(3.),
        "lanczos5" => Kernel::Lanczos(5.),
        "gaussian" => Kernel::Gaussian,
        "box" => Kernel::Box,
        "triangle" => Kernel::Triangle,
        "keyscubic" => Kernel::Keys,
        "mitchellcubic" => Kernel::Mitchell,
        name => return invalid!("Unrecognized kernel type: {name}"),
    };
    Ok(Box::new(ScaleAndTranslate { kernel, antialias: attrs.bool_or("antialias", true)? }))
});

struct ScaleAndTranslate {
    kernel: Kernel,
    antialias: bool,
}

/// The weight of a place by its distance.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Lanczos(f32),
    Gaussian,
    Box,
    Triangle,
    Keys,
    Mitchell,
}

impl Op for ScaleAndTranslate {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [images, size, scale, translation] = arity(inputs)?;
        images.require_rank(4)?;
        for vector in [size, scale, translation] {
            vector.require_rank(1)?;
        }
        let dim = |i: usize| images.dims().map_or(Dim::Unknown, |dims| dims[i].clone());
        let sizes = size.sizes().unwrap_or_else(|| vec![Dim::Unknown; 2]);
        let [height, width] = &sizes[..] else {
            return invalid!("a size of {} numbers", sizes.len());
        };
        Ok(vec![Spec::new(DType::F32, [dim(0), height.clone(), width.clone(), dim(3)])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (images, scale, translation) = (ctx.input(0), ctx.input(2), ctx.input(3));
        let (height, width) = super::size_of(ctx.input(1))?;
        let [batch, in_height, in_width, channels] = *images.shape().dims() else {
            return invalid!("input must be 4-dimensional: {}", images.shape());
        };
        let (&[scale_y, scale_x], &[move_y, move_x]) =
            (scale.as_slice::<f32>(), translation.as_slice::<f32>())
        else {
            return invalid!("scale and translation must have two elements");
        };
        if !(scale_y > 0. && scale_x > 0.) {
            return invalid!("Scale must be greater than zero.");
        }
        if height == 0 || width == 0 || in_height == 0 || in_width == 0 || channels == 0 {
            return invalid!("image and output must have positive dimensions");
        }
        let shape = Shape::checked([batch, height, width, channels].map(|dim| dim as i64))?;
        let (pool, mut scratch) = (ctx.env().pool, ctx.scratch());
        // The output first: it is what fails if the size asked for is absurd.
        let mut out = ctx.output(0, DType::F32, &shape)?;
        let axis = |from, to, scale, translation| TranslatedAxis { from, to, scale, translation };
        let rows = self.taps(axis(in_height, height, scale_y, move_y), &mut scratch)?;
        let columns = self.taps(axis(in_width, width, scale_x, move_x), &mut scratch)?;
        let (size, line) = (in_height * in_width * channels, width * channels);
        for_number!(images.dtype(), T => {
            let images: &[T] = images.as_slice();
            pool.run_chunks(out.as_mut_slice(), line, &|number, out: &mut [f32]| {
                let image = &images[number / height * size..][..size];
                for (x, out) in out.chunks_exact_mut(channels).enumerate() {
                    let n_taps = rows.of(number % height).len() * columns.of(x).len();
                    if is_stopped(n_taps * channels) {
                        return;
                    }
                    for (c, out) in out.iter_mut().enumerate() {
                        let at = |y: usize, x: usize| -> f32 {
                            image[(y * in_width + x) * channels + c].as_()
                        };
                        *out = weighted(rows.of(number % height), &columns.of(x), at);
                    }
                }
            });
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (Some(from), Some(to)) = (inputs[0].shape(), outputs[0].shape()) else { return 0 };
        let axis = |i: usize| {
            let (from, to) = (from[i], to[i]);
            // How far a filter reaches depends on the scale. There is room for the widest one that
            // scales all of the image to all of the output, and for any of a small image.
            let n_taps = (from.saturating_mul(to)).min(16 * (from + to));
            Scratch::bytes_of::<[usize; 2]>(to) + Scratch::bytes_of::<f32>(n_taps)
        };
        axis(1) + axis(2)
    }
}

/// The places along one axis that each output pixel is made of, with their weights.
struct Taps<'a> {
    /// For each pixel, its first place, and where its weights begin.
    spans: Part<'a, [usize; 2]>,
    weights: Part<'a, f32>,
}

impl Taps<'_> {
    /// The places and weights of a pixel.
    fn of(&self, x: usize) -> impl ExactSizeIterator<Item = (usize, f32)> + Clone {
        let [first, start] = self.spans[x];
        let end = self.spans.get(x + 1).map_or(self.weights.len(), |next| next[1]);
        (first..first + (end - start)).zip(self.weights[start..end].iter().copied())
    }
}

/// An axis of the image, from so many pixels to so many others.
#[derive(Clone, Copy)]
struct TranslatedAxis {
    from: usize,
    to: usize,
    scale: f32,
    translation: f32,
}

impl ScaleAndTranslate {
    /// The places along one axis that each output pixel is made of; none outside of the image.
    fn taps<'a>(&self, axis: TranslatedAxis, scratch: &mut Scratch<'a>) -> Result<Taps<'a>> {
        let TranslatedAxis { from, to, scale, translation } = axis;
        let inverse = 1. / scale;
        let shift = -inverse * translation;
        let stretch = if self.antialias { inverse.max(1.) } else { 1. };
        let radius = self.kernel.radius() * stretch;
        let last = (from - 1) as f32;
        let centre = |x: usize| (x as f32 + 0.5) * inverse + shift;
        let places = |x: usize| {
            let centre = centre(x);
            if !(centre >= 0. && centre <= from as f32) {
                return 0..0;
            }
            let first = (centre - radius - 0.5).ceil().clamp(0., last) as usize;
            let end = (centre + radius - 0.5).floor().clamp(0., last) as usize;
            first..end + 1
        };
        let mut spans = scratch.part(to)?;
        let mut n_taps = 0;
        for (x, span) in spans.iter_mut().enumerate() {
            *span = [places(x).start, n_taps];
            n_taps += places(x).len();
        }
        let mut weights = scratch.part(n_taps)?;
        for (x, [_, start]) in spans.iter().enumerate() {
            let weights = &mut weights[*start..][..places(x).len()];
            for (i, weight) in places(x).zip(&mut *weights) {
                *weight = self.kernel.at(((i as f32 + 0.5 - centre(x)) / stretch).abs());
            }
            normalise(weights);
            pace(8 * weights.len())?;
        }
        Ok(Taps { spans, weights })
    }
}

impl Kernel {
    fn radius(self) -> f32 {
        match self {
            Self::Lanczos(radius) => radius,
            Self::Gaussian => 1.5,
            Self::Box => 0.5,
            Self::Triangle => 1.,
            Self::Keys | Self::Mitchell => 2.,
        }
    }

    /// The weight at a distance, which is not negative.
    fn at(self, x: f32) -> f32 {
        match self {
            Self::Lanczos(radius) if x > radius => 0.,
            Self::Lanczos(_) if x <= 1e-3 => 1.,
            Self::Lanczos(radius) => {
                radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
            }
            Self::Gaussian if x >= 1.5 => 0.,
            // A third of the radius is the standard deviation.
            Self::Gaussian => (-x * x / (2. * 0.5 * 0.5)).exp(),
            Self::Box if x < 0.5 => 1.,
            Self::Box if x == 0.5 => 0.5,
            Self::Triangle if x < 1. => 1. - x,
            Self::Box | Self::Triangle => 0.,
            Self::Keys | Self::Mitchell if x >= 2. => 0.,
            Self::Keys if x >= 1. => ((-0.5 * x + 2.5) * x - 4.) * x + 2.,
            Self::Keys => ((1.5 * x - 2.5) * x) * x + 1.,
            Self::Mitchell if x >= 1. => (((-7. / 18.) * x + 2.) * x - 10. / 3.) * x + 16. / 9.,
            Self::Mitchell => (((7. / 6.) * x - 2.) * x) * x + 8. / 9.,
        }
    }
}
