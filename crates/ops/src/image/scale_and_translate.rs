//! `ScaleAndTranslate`: images scaled and moved, with a choice of smoothing kernels.
//!
//! Follows `scale_and_translate_op.cc` and `sampling_kernels.h`.

use std::f32::consts::PI;

use num_traits::AsPrimitive;

use smallvec::SmallVec;

use super::sampling::{normalise, weighted};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("ScaleAndTranslate", |attrs| {
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

/// How a place is weighted by its distance.
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
        let pool = ctx.env().pool;
        // The output first: it is what fails if the size asked for is absurd.
        let mut out = ctx.output(0, DType::F32, &shape)?;
        let rows = self.taps((in_height, height), scale_y, move_y);
        let columns = self.taps((in_width, width), scale_x, move_x);
        let (size, line) = (in_height * in_width * channels, width * channels);
        for_number!(images.dtype(), T => {
            let images: &[T] = images.as_slice();
            pool.run_chunks(out.as_mut_slice(), line, &|number, out: &mut [f32]| {
                let image = &images[number / height * size..][..size];
                for (out, column) in out.chunks_exact_mut(channels).zip(&columns) {
                    for (c, out) in out.iter_mut().enumerate() {
                        let at = |y: usize, x: usize| -> f32 {
                            image[(y * in_width + x) * channels + c].as_()
                        };
                        let rows = rows[number % height].iter().copied();
                        *out = weighted(rows, &column.iter().copied(), at);
                    }
                }
            });
        });
        Ok(())
    }
}

/// The places along one axis that a pixel is made of, with their weights.
type Taps = SmallVec<[(usize, f32); 4]>;

impl ScaleAndTranslate {
    /// The places along one axis that each output pixel is made of; none outside of the image.
    fn taps(&self, (from, to): (usize, usize), scale: f32, translation: f32) -> Vec<Taps> {
        let inverse = 1. / scale;
        let shift = -inverse * translation;
        let stretch = if self.antialias { inverse.max(1.) } else { 1. };
        let radius = self.kernel.radius() * stretch;
        let last = (from - 1) as f32;
        let taps = |x: usize| {
            let centre = (x as f32 + 0.5) * inverse + shift;
            if !(centre >= 0. && centre <= from as f32) {
                return Taps::new();
            }
            let first = (centre - radius - 0.5).ceil().clamp(0., last) as usize;
            let end = (centre + radius - 0.5).floor().clamp(0., last) as usize;
            let weight = |i: usize| self.kernel.at(((i as f32 + 0.5 - centre) / stretch).abs());
            let mut taps: Taps = (first..=end).map(|i| (i, weight(i))).collect();
            normalise(&mut taps);
            taps
        };
        (0..to).map(taps).collect()
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
