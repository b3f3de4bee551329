//! The convolution of any element, channels last: the path of all dtypes but `f32`.

use super::window::Window;
use crate::cancel::is_stopped;
use crate::linalg::Scalar;

/// A convolution with all sizes known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conv {
    pub(crate) batch: usize,
    pub(crate) window: Window,
    pub(crate) groups: usize,
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
}

impl Conv {
    /// Writes the convolution of `image` with `filter` (`[taps, channels of a group, outputs]`).
    pub(crate) fn run<T: Scalar>(&self, image: &[T], filter: &[T], out: &mut [T]) {
        let window = &self.window;
        out.fill(T::ZERO);
        let mut pixels = out.chunks_exact_mut(self.out_channels.max(1));
        for image in image.chunks_exact((window.n_inputs() * self.in_channels).max(1)) {
            for place in 0..window.n_outputs() {
                let Some(out) = pixels.next() else { return };
                if is_stopped(window.n_taps()) {
                    return;
                }
                self.pixel(image, filter, place, out);
            }
        }
    }

    /// One pixel of the output: the sum over all taps that lie in the image.
    fn pixel<T: Scalar>(&self, image: &[T], filter: &[T], place: usize, out: &mut [T]) {
        let window = &self.window;
        let [_, height, width] = window.output;
        let (z, y, x) = (place / (height * width), place / width % height, place % width);
        let tap_len = self.in_channels / self.groups * self.out_channels;
        let [_, tap_height, tap_width] = window.size;
        for tap in 0..window.n_taps() {
            let tap_y = tap / tap_width % tap_height;
            let (Some(z), Some(y), Some(x)) = (
                window.at(0, z, tap / (tap_width * tap_height)),
                window.at(1, y, tap_y),
                window.at(2, x, tap % tap_width),
            ) else {
                continue;
            };
            let at = (z * window.input[1] + y) * window.input[2] + x;
            let pixel = &image[at * self.in_channels..][..self.in_channels];
            if is_stopped(tap_len / self.groups) {
                return;
            }
            self.tap(pixel, &filter[tap * tap_len..][..tap_len], out);
        }
    }

    fn tap<T: Scalar>(&self, pixel: &[T], filter: &[T], out: &mut [T]) {
        let (ins, outs) = (self.in_channels / self.groups, self.out_channels / self.groups);
        for (group, (pixel, out)) in
            pixel.chunks_exact(ins).zip(out.chunks_exact_mut(outs.max(1))).enumerate()
        {
            for (x, row) in pixel.iter().zip(filter.chunks_exact(self.out_channels.max(1))) {
                let row = &row[group * outs..][..outs];
                out.iter_mut().zip(row).for_each(|(out, f)| *out = out.plus_product(*x, *f));
            }
        }
    }
}
