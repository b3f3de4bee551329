//! `RGBToHSV`, `HSVToRGB`, `AdjustHue`, `AdjustSaturation` and `AdjustContrastv2`.
//!
//! Follows `colorspace_op.h`, `adjust_hue_op.cc`, `adjust_saturation_op.cc` and
//! `adjust_contrast_op.cc`.

use crate::error::unsupported;
use crate::nn::{float, narrow, widen_to};
use crate::prelude::*;

pub(super) const RGB_TO_HSV: OpDef =
    OpDef::pure("RGBToHSV", RowRule::Images, |_| Ok(Box::new(Color { change: Change::ToHsv })));
pub(super) const HSV_TO_RGB: OpDef =
    OpDef::pure("HSVToRGB", RowRule::Images, |_| Ok(Box::new(Color { change: Change::ToRgb })));
pub(super) const HUE: OpDef =
    OpDef::pure("AdjustHue", RowRule::Images, |_| Ok(Box::new(Color { change: Change::Hue })));
pub(super) const SATURATION: OpDef = OpDef::pure("AdjustSaturation", RowRule::Images, |_| {
    Ok(Box::new(Color { change: Change::Saturation }))
});
pub(super) const CONTRAST: OpDef = OpDef::pure("AdjustContrastv2", RowRule::Images, |_| {
    Ok(Box::new(Color { change: Change::Contrast }))
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    ToHsv,
    ToRgb,
    Hue,
    Saturation,
    Contrast,
}

struct Color {
    change: Change,
}

impl Color {
    /// Returns whether a second input gives the amount.
    fn takes_amount(&self) -> bool {
        !matches!(self.change, Change::ToHsv | Change::ToRgb)
    }

    /// TensorFlow's code for images that are not of three channels.
    fn not_three(&self, got: &str) -> Error {
        let text = format!("the last dimension must be 3 channels: {got}");
        match self.takes_amount() {
            true => Error::InvalidArgument(text),
            false => Error::FailedPrecondition(text),
        }
    }
}

impl Op for Color {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let images = match self.takes_amount() {
            true => {
                let [images, amount] = arity(inputs)?;
                amount.require_rank(0)?;
                images.require_rank_at_least(3)?;
                images
            }
            false => {
                let [images] = arity(inputs)?;
                images.require_rank_at_least(1)?;
                images
            }
        };
        let channels = images.dims().and_then(<[Dim]>::last);
        if self.change != Change::Contrast
            && channels.is_some_and(|channels| channels.differs(&Dim::Known(3)))
        {
            return Err(self.not_three(&images.to_string()));
        }
        Ok(vec![images.with_dtype(images.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let images = ctx.input(0);
        let amount = match self.takes_amount() {
            false => 0.,
            true => match float(&ctx.input(1)) {
                Some(amount) => amount,
                None => return invalid!("the amount must be a number"),
            },
        };
        if self.change != Change::Contrast && images.shape().last_dim() != 3 {
            return Err(self.not_three(&images.shape().to_string()));
        }
        let (shape, mut scratch) = (images.shape(), ctx.scratch());
        let mut out = ctx.output(0, images.dtype(), shape)?;
        if images.dtype() == DType::F32 {
            let out = out.as_mut_slice::<f32>();
            out.copy_from_slice(images.as_slice());
            return self.apply(out, shape, amount);
        }
        let mut wide = scratch.part(images.n_elements())?;
        if images.dtype() == DType::F64 {
            let from = images.as_slice::<f64>();
            wide.iter_mut().zip(from).for_each(|(wide, x)| *wide = *x as f32);
            self.apply(&mut wide, shape, amount)?;
            let out = out.as_mut_slice::<f64>().iter_mut();
            out.zip(wide.iter()).for_each(|(out, x)| *out = f64::from(*x));
            return Ok(());
        }
        if !widen_to(&images, &mut wide) {
            return unsupported!("dtype {} is not supported here", images.dtype());
        }
        self.apply(&mut wide, shape, amount)?;
        narrow(&wide, &mut out)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let images = &inputs[0];
        if images.dtype == DType::F32 { 0 } else { Scratch::bytes_for::<f32>(images) }
    }
}

impl Color {
    fn apply(&self, pixels: &mut [f32], shape: &Shape, amount: f32) -> Result<()> {
        match self.change {
            Change::ToHsv => each(pixels, to_hsv),
            Change::ToRgb => each(pixels, to_rgb),
            Change::Hue => each(pixels, |pixel| with_hue(pixel, amount)),
            Change::Saturation => each(pixels, |pixel| {
                let [hue, saturation, value] = to_hsv(pixel);
                to_rgb([hue, (saturation * amount).clamp(0., 1.), value])
            }),
            Change::Contrast => return contrast(pixels, shape, amount),
        }
        Ok(())
    }
}

fn each(pixels: &mut [f32], change: impl Fn([f32; 3]) -> [f32; 3]) {
    for pixels in pixels.as_chunks_mut::<3>().0.chunks_mut(AT_ONCE) {
        if is_stopped(32 * pixels.len()) {
            return;
        }
        pixels.iter_mut().for_each(|pixel| *pixel = change(*pixel));
    }
}

/// Hue, saturation and value of red, green and blue.
fn to_hsv([red, green, blue]: [f32; 3]) -> [f32; 3] {
    let value = red.max(green).max(blue);
    let range = value - red.min(green).min(blue);
    let saturation = if value > 0. { range / value } else { 0. };
    if range == 0. {
        return [0., saturation, value];
    }
    let norm = 1. / (6. * range);
    let hue = if red == value {
        norm * (green - blue)
    } else if green == value {
        norm * (blue - red) + 2. / 6.
    } else {
        norm * (red - green) + 4. / 6.
    };
    [if hue < 0. { hue + 1. } else { hue }, saturation, value]
}

/// Red, green and blue of hue, saturation and value.
fn to_rgb([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    let six = hue * 6.;
    let parts = [(six - 3.).abs() - 1., 2. - (six - 2.).abs(), 2. - (six - 4.).abs()];
    parts.map(|part| (part.clamp(0., 1.) * saturation + (1. - saturation)) * value)
}

/// The channels that are the largest, the middle and the smallest in each sixth of the hues. In
/// every other sixth the middle one falls as the hue grows.
const SIXTHS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0], [2, 0, 1], [0, 2, 1]];

/// The pixel with another hue: which channel is largest and smallest and where the middle one is
/// between them, so that numbers below 0 keep their range.
fn with_hue(pixel: [f32; 3], amount: f32) -> [f32; 3] {
    let [red, green, blue] = pixel;
    let sixth = match () {
        () if red < green && blue < red => 1,
        () if red < green && blue < green => 2,
        () if red < green => 3,
        () if blue < green => 0,
        () if blue < red => 5,
        () => 4,
    };
    let [most, middle, least] = SIXTHS[sixth].map(|channel| pixel[channel]);
    let along = |sixth: usize, ratio: f32| if sixth.is_multiple_of(2) { ratio } else { 1. - ratio };
    let range = most - least;
    let hue = if range == 0. { 0. } else { sixth as f32 + along(sixth, (middle - least) / range) };
    // A sum just below 0 rounds up to 6, which is 0 again.
    let hue = (hue + amount * 6.).rem_euclid(6.);
    let hue = if hue < 6. { hue } else { 0. };
    let sixth = (hue as usize).min(5);
    let middle = least + along(sixth, hue - sixth as f32) * range;
    let mut changed = [0.; 3];
    for (channel, value) in SIXTHS[sixth].into_iter().zip([most, middle, least]) {
        changed[channel] = value;
    }
    changed
}

/// Moves each channel of each image away from its mean.
fn contrast(data: &mut [f32], shape: &Shape, factor: f32) -> Result<()> {
    let rank = shape.rank();
    if rank < 3 {
        return invalid!("input must be at least 3-D, got shape {shape}");
    }
    let channels = shape[rank - 1];
    let size = shape[rank - 3..].iter().product::<usize>().max(1);
    for image in data.chunks_exact_mut(size) {
        for channel in 0..channels {
            pace(4 * image.len() / channels)?;
            let values = || image.iter().skip(channel).step_by(channels);
            let sum: f64 = values().map(|x| f64::from(*x)).sum();
            let mean = (sum / values().count() as f64) as f32;
            let values = image.iter_mut().skip(channel).step_by(channels);
            values.for_each(|x| *x = (*x - mean) * factor + mean);
        }
    }
    Ok(())
}
