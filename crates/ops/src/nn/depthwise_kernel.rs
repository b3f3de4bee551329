//! Depthwise convolution, channels last.

use ::pool::Pool;

use kernels::{Along, DepthwiseWeights, Lines};

use super::window::Window;
use crate::cancel::is_stopped;
use crate::linalg::Scalar;

/// A depthwise convolution with all sizes known.
#[derive(Debug, Clone, Copy)]
pub(super) struct DepthwiseConv {
    pub(super) batch: usize,
    pub(super) window: Window,
    pub(super) channels: usize,
    pub(super) multiplier: usize,
}

/// The least multiply-adds that are worth a task of their own.
const TASK_WORK: usize = 1 << 18;

impl DepthwiseConv {
    /// The same for `f32`, followed by a bias and an activation.
    pub(super) fn run_f32(
        &self,
        pool: &Pool,
        image: &[f32],
        weights: DepthwiseWeights<'_>,
        out: &mut [f32],
    ) {
        let DepthwiseWeights { filter, bias, activation, .. } = weights;
        if self.multiplier != 1 || self.channels < kernels::LEAST_CHANNELS {
            self.run(image, filter, out);
            if let Some(bias) = bias {
                let pixels = out.chunks_exact_mut(bias.len().max(1));
                pixels.for_each(|out| out.iter_mut().zip(bias).for_each(|(out, b)| *out += b));
            }
            return activation.apply(out);
        }
        if out.is_empty() {
            return;
        }
        let line = self.window.output[2] * self.channels;
        let lines = (TASK_WORK / self.window.n_taps().max(1)).div_ceil(line);
        pool.run_chunks(out, lines * line, &|task, out| {
            for (i, out) in out.chunks_exact_mut(line).enumerate() {
                if is_stopped(line * self.window.n_taps() / 8) {
                    return;
                }
                self.line(image, weights, task * lines + i, out);
            }
        });
    }

    /// One row of the output of one image; rows of all images are numbered through.
    fn line(&self, image: &[f32], weights: DepthwiseWeights<'_>, number: usize, out: &mut [f32]) {
        let window = &self.window;
        let (image_number, y) = (number / window.output[1], number % window.output[1]);
        let taps = || (0..window.size[1]).filter(|tap| window.at(1, y, *tap).is_some());
        let (first, count) = (taps().next().unwrap_or(0), taps().count());
        let row = window.input[2] * self.channels;
        let top = image_number * window.input[1] + window.at(1, y, first).unwrap_or(0);
        let lines = Lines {
            image: image.get(top * row..).unwrap_or_default(),
            step: window.dilation[1] * row,
            count,
        };
        let along = Along {
            width: window.input[2],
            taps: window.size[2],
            stride: window.stride[2],
            dilation: window.dilation[2],
            before: window.before[2],
        };
        let filter = &weights.filter[first * window.size[2] * self.channels..];
        kernels::depthwise_row(along, lines, DepthwiseWeights { filter, ..weights }, out);
    }

    /// Writes the convolution of `image` with `filter` (`[taps, channels, multiplier]`).
    pub(super) fn run<T: Scalar>(&self, image: &[T], filter: &[T], out: &mut [T]) {
        let window = &self.window;
        out.fill(T::ZERO);
        let mut pixels = out.chunks_exact_mut((self.channels * self.multiplier).max(1));
        for image in image.chunks_exact((window.n_inputs() * self.channels).max(1)) {
            for place in 0..window.n_outputs() {
                let Some(out) = pixels.next() else { return };
                if is_stopped(filter.len()) {
                    return;
                }
                self.pixel(image, filter, place, out);
            }
        }
    }

    fn pixel<T: Scalar>(&self, image: &[T], filter: &[T], place: usize, out: &mut [T]) {
        let window = &self.window;
        let (y, x) = (place / window.output[2], place % window.output[2]);
        for (tap, filter) in filter.chunks_exact(out.len()).enumerate() {
            let (tap_y, tap_x) = (tap / window.size[2], tap % window.size[2]);
            let (Some(y), Some(x)) = (window.at(1, y, tap_y), window.at(2, x, tap_x)) else {
                continue;
            };
            let pixel = &image[(y * window.input[2] + x) * self.channels..][..self.channels];
            let outs = out.chunks_exact_mut(self.multiplier);
            let filters = filter.chunks_exact(self.multiplier);
            for ((out, filter), x) in outs.zip(filters).zip(pixel) {
                out.iter_mut().zip(filter).for_each(|(out, f)| *out = out.plus_product(*x, *f));
            }
        }
    }
}
