//! Convolution turned round, channels last: each pixel of the small image adds its window to the
//! large one.
//!
//! For `f32` the windows are rows of a matrix product, made for a few pixels at a time and added in
//! the order of the pixels, so that the digits depend on the image alone.

use ::pool::Pool;
use tensor::Handle;

use super::window::Window;
use crate::linalg::{Form, Matrix, Scalar};
use crate::op::Packed;
use crate::prelude::*;
use crate::simd::{self, Epilogue, Left, Panels, PanelsView, Product};

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

impl Turned {
    /// Packs a filter into memory of its own.
    pub(super) fn pack<'a>(&self, filter: &[f32], own: &'a mut Vec<f32>) -> PanelsView<'a> {
        let matrix = turned(filter, self.small_channels);
        own.resize(PanelsView::len(matrix.size.0, matrix.size.1), 0.);
        PanelsView::pack(matrix, own)
    }

    /// Writes the large images.
    pub(super) fn run_f32(
        &self,
        pool: &Pool,
        small: &[f32],
        filter: PanelsView<'_>,
        out: &mut [f32],
    ) {
        out.fill(0.);
        let (pixels, size) =
            (self.window.n_outputs(), self.window.n_inputs() * self.large_channels);
        if size == 0 || pixels * self.small_channels == 0 {
            return;
        }
        let columns = self.window.n_taps() * self.large_channels;
        let at_once = (STRIP / columns.max(1)).clamp(1, pixels);
        // One image after the other if there is one alone, else one image for each thread.
        pool.run_chunks(out, size, &|image, out| {
            let mut windows = vec![0.; at_once * columns];
            let small = &small[image * pixels * self.small_channels..];
            for first in (0..pixels).step_by(at_once) {
                let rows = at_once.min(pixels - first);
                let product = Product {
                    rows,
                    left: Left::Matrix(&small[first * self.small_channels..], self.small_channels),
                    right: filter,
                    epilogue: Epilogue::default(),
                    stride: columns,
                };
                simd::multiply(pool, &product, &mut windows);
                for (i, window) in windows.chunks_exact(columns).take(rows).enumerate() {
                    self.add(first + i, window, out);
                }
            }
        });
    }

    /// The same for any element, with a filter as it is.
    pub(super) fn run<T: Scalar>(&self, small: &[T], filter: &[T], out: &mut [T]) {
        out.fill(T::ZERO);
        let (pixels, channels) = (self.window.n_outputs(), self.small_channels);
        let size = self.window.n_inputs() * self.large_channels;
        if size == 0 || pixels * channels == 0 {
            return;
        }
        let mut window = vec![T::ZERO; self.window.n_taps() * self.large_channels];
        for (image, out) in out.chunks_exact_mut(size).enumerate() {
            for place in 0..pixels {
                let pixel = &small[(image * pixels + place) * channels..][..channels];
                for (sum, row) in window.iter_mut().zip(filter.chunks_exact(channels)) {
                    let terms = pixel.iter().zip(row);
                    *sum = terms.fold(T::ZERO, |sum, (x, f)| sum.plus_product(*x, *f));
                }
                self.add(place, &window, out);
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
