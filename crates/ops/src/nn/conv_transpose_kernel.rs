//! Convolution turned round, channels last: each pixel of the small image adds its window to the
//! large one.
//!
//! For `f32` the windows are rows of a matrix product, made for a strip of pixels at a time and
//! added in the order of the pixels, so that the digits depend on the image alone.

use ::pool::Pool;
use kernels::{Epilogue, Form, Left, Matrix, PanelsView, Product};
use tensor::Handle;

use super::window::Window;
use crate::linalg::{Panels, Scalar};
use crate::op::Packed;
use crate::prelude::*;

/// A convolution turned round, with all sizes known. The window slides over the large image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turned {
    pub(super) window: Window,
    pub(super) large_channels: usize,
    pub(super) small_channels: usize,
}

/// A constant filter, packed.
pub(super) struct PackedTurned {
    /// The shape of the tensor that was packed.
    pub(super) shape: Shape,
    panels: Panels,
}

impl PackedTurned {
    /// Packs a filter whose last dimension is the channels of the small image.
    pub(super) fn pack(filter: &Tensor) -> Result<Packed> {
        let shape = filter.shape().clone();
        let panels = Panels::new(turned(filter.as_slice(), shape.last_dim()))?;
        let n_bytes = panels.n_bytes();
        Ok(Packed { object: Handle::new(Self { shape, panels }), n_bytes })
    }

    pub(super) fn view(&self) -> PanelsView<'_> {
        self.panels.view()
    }
}

/// A filter as a matrix with a row for each channel of the small image.
fn turned(filter: &[f32], rows: usize) -> Matrix<'_, f32> {
    Matrix::new(filter, (filter.len().checked_div(rows).unwrap_or(0), rows), Form::Transposed)
}

/// The floats of windows that are made at a time.
const STRIP: usize = 1 << 18;

/// The floats of the large images that a thread writes at a time.
const PIECE: usize = 1 << 14;

impl Turned {
    /// The floats of a filter that is not packed yet, once it is.
    pub(super) fn panels_len(&self) -> usize {
        PanelsView::len(self.columns(), self.small_channels)
    }

    /// Packs a filter into `memory`.
    pub(super) fn pack<'a>(&self, filter: &[f32], memory: &'a mut [f32]) -> PanelsView<'a> {
        PanelsView::pack(turned(filter, self.small_channels), memory)
    }

    /// The elements of a pixel's window.
    pub(super) fn columns(&self) -> usize {
        self.window.n_taps() * self.large_channels
    }

    /// The elements of the windows that are made at a time for so many images.
    pub(super) fn strip_len(&self, n_images: usize) -> usize {
        self.strip_pixels(n_images) * self.columns()
    }

    /// Returns the number of pixels of those windows.
    fn strip_pixels(&self, n_images: usize) -> usize {
        let pixels = n_images.saturating_mul(self.window.n_outputs());
        (STRIP / self.columns().max(1)).max(1).min(pixels)
    }

    /// Writes the large images, with room for the windows of a strip.
    pub(super) fn run_f32(
        &self,
        pool: &Pool,
        small: &[f32],
        filter: PanelsView<'_>,
        (windows, out): (&mut [f32], &mut [f32]),
    ) {
        out.fill(0.);
        let size = self.window.n_inputs() * self.large_channels;
        if small.is_empty() || size == 0 {
            return;
        }
        let (n_images, columns) = (out.len() / size, self.columns());
        let (pixels, at_once) =
            (n_images * self.window.n_outputs(), self.strip_pixels(n_images).max(1));
        for first in (0..pixels).step_by(at_once) {
            let rows = at_once.min(pixels - first);
            if is_stopped(rows * columns) {
                return;
            }
            let product = Product {
                rows,
                left: Left::Matrix(&small[first * self.small_channels..], self.small_channels),
                right: filter,
                epilogue: Epilogue::default(),
                stride: columns,
            };
            kernels::multiply(pool, &product, windows);
            let strip = Strip { first, windows: &windows[..rows * columns] };
            self.add_strip(pool, &strip, out);
        }
    }

    /// The same for any element, with a filter as it is and room for one window.
    pub(super) fn run<T: Scalar>(
        &self,
        small: &[T],
        filter: &[T],
        (window, out): (&mut [T], &mut [T]),
    ) {
        out.fill(T::ZERO);
        let (pixels, channels) = (self.window.n_outputs(), self.small_channels);
        let size = self.window.n_inputs() * self.large_channels;
        if size == 0 || pixels * channels == 0 {
            return;
        }
        for (image, out) in out.chunks_exact_mut(size).enumerate() {
            for place in 0..pixels {
                if is_stopped(window.len() * channels) {
                    return;
                }
                let pixel = &small[(image * pixels + place) * channels..][..channels];
                for (sum, row) in window.iter_mut().zip(filter.chunks_exact(channels)) {
                    let terms = pixel.iter().zip(row);
                    *sum = terms.fold(T::ZERO, |sum, (x, f)| sum.plus_product(*x, *f));
                }
                self.add(place, window, out);
            }
        }
    }

    /// Adds the windows of a strip to the large images that they lie in, row by row of those: each
    /// is one thread's, and takes what is added to it in the order of the small images' pixels.
    fn add_strip(&self, pool: &Pool, strip: &Strip<'_>, out: &mut [f32]) {
        let pixels = self.window.n_outputs();
        let [depth, height, width] = self.window.input;
        let (row, n_rows) = (width * self.large_channels, depth * height);
        let n_pixels = strip.windows.len() / self.columns();
        let (image, end) = (strip.first / pixels, (strip.first + n_pixels).div_ceil(pixels));
        let out = &mut out[image * n_rows * row..end * n_rows * row];
        let rows = PIECE.div_ceil(row);
        pool.run_chunks(out, rows * row, &|piece, out| {
            for (i, out) in out.chunks_exact_mut(row).enumerate() {
                let number = piece * rows + i;
                let place = [image + number / n_rows, number / height % depth, number % height];
                self.add_row(strip, place, out);
            }
        });
    }

    /// Adds what a strip has for one row of a large image.
    fn add_row(&self, strip: &Strip<'_>, [image, z, y]: [usize; 3], out: &mut [f32]) {
        let (window, columns, channels) = (&self.window, self.columns(), self.large_channels);
        let [depth, height, width] = window.output;
        let [_, tap_height, tap_width] = window.size;
        let n_pixels = strip.windows.len() / columns;
        for (from_z, tap_z) in window.reaching(0, z) {
            for (from_y, tap_y) in window.reaching(1, y) {
                let first = ((image * depth + from_z) * height + from_y) * width;
                // The pixels of this row of the small image that the strip has.
                let start = strip.first.saturating_sub(first).min(width);
                let end = (strip.first + n_pixels).saturating_sub(first).min(width);
                let tap = (tap_z * tap_height + tap_y) * tap_width;
                for x in start..end {
                    let at = (first + x - strip.first) * columns + tap * channels;
                    let taps = strip.windows[at..].chunks_exact(channels).take(tap_width);
                    for (tap, values) in taps.enumerate() {
                        let Some(x) = window.at(2, x, tap) else { continue };
                        let out = &mut out[x * channels..][..channels];
                        out.iter_mut().zip(values).for_each(|(out, x)| *out += *x);
                    }
                }
            }
        }
    }

    /// Adds the window of the small image's pixel `place` to the large image.
    fn add<T: Scalar>(&self, place: usize, values: &[T], out: &mut [T]) {
        let window = &self.window;
        let [_, height, width] = window.output;
        let (z, y, x) = (place / (height * width), place / width % height, place % width);
        let [_, tap_height, tap_width] = window.size;
        for (tap, values) in values.chunks_exact(self.large_channels).enumerate() {
            let (Some(z), Some(y), Some(x)) = (
                window.at(0, z, tap / (tap_width * tap_height)),
                window.at(1, y, tap / tap_width % tap_height),
                window.at(2, x, tap % tap_width),
            ) else {
                continue;
            };
            let at = ((z * window.input[1] + y) * window.input[2] + x) * self.large_channels;
            let out = &mut out[at..][..self.large_channels];
            out.iter_mut().zip(values).for_each(|(out, x)| *out = out.plus(*x));
        }
    }
}

/// The windows of some pixels of the small images, which follow each other.
struct Strip<'a> {
    first: usize,
    windows: &'a [f32],
}
