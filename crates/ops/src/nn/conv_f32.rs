//! The convolution of `f32`, channels last, as a matrix product: a row for each pixel of the
//! output, a column for each of its channels.
//!
//! A window of one pixel reads the image itself; all others gather the pixels under the window
//! while the product runs.

use std::ops::Range;

use ::pool::Pool;
use tensor::Handle;

use super::conv_kernel::Conv;
use crate::linalg::{Form, Matrix};
use crate::op::Packed;
use crate::prelude::*;
use crate::simd::{self, Epilogue, Left, Panels, PanelsView, Product, Rows};

/// A constant filter, packed.
pub(crate) struct PackedFilter {
    /// The shape of the tensor that was packed.
    pub(crate) shape: Shape,
    panels: Panels,
}

impl PackedFilter {
    /// Packs a filter whose last dimension is the channels of the output.
    pub(crate) fn pack(filter: &Tensor) -> Result<Packed> {
        let shape = filter.shape().clone();
        let panels = Panels::new(matrix(filter.as_slice(), shape.last_dim()))?;
        let n_bytes = panels.n_bytes();
        Ok(Packed { object: Handle::new(Self { shape, panels }), n_bytes })
    }

    pub(crate) fn view(&self) -> PanelsView<'_> {
        self.panels.view()
    }
}

/// A filter as a matrix with a column for each channel of the output.
fn matrix(filter: &[f32], columns: usize) -> Matrix<'_, f32> {
    let rows = filter.len().checked_div(columns).unwrap_or(0);
    Matrix::new(filter, (rows, columns), Form::Plain)
}

impl Conv {
    /// The floats of scratch memory that an unpacked filter needs.
    pub(crate) fn scratch_len(&self) -> usize {
        let inner = self.window.n_taps() * self.in_channels / self.groups.max(1);
        PanelsView::len(inner, self.out_channels)
    }

    /// Packs a filter into `memory`.
    pub(crate) fn pack<'a>(&self, filter: &[f32], memory: &'a mut [f32]) -> PanelsView<'a> {
        PanelsView::pack(matrix(filter, self.out_channels), memory)
    }

    /// Writes the convolution of `image` with a packed filter, and what comes after it.
    pub(crate) fn run_f32(
        &self,
        pool: &Pool,
        image: &[f32],
        (filter, epilogue): (PanelsView<'_>, Epilogue<'_>),
        out: &mut [f32],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if self.groups <= 1 {
            self.group(pool, image, (filter, epilogue), (0, out));
            return Ok(());
        }
        let outs = self.out_channels / self.groups;
        for group in 0..self.groups {
            let first = group * outs;
            let epilogue = Epilogue {
                bias: epilogue.bias.map(|bias| &bias[first..]),
                residual: epilogue.residual.map(|residual| &residual[first..]),
                ..epilogue
            };
            let columns = first..first + outs;
            if let Some(part) = filter.columns(columns.clone()) {
                self.group(pool, image, (part, epilogue), (group, &mut out[first..]));
            } else {
                let part = filter.unpacked(columns);
                let part = Panels::new(matrix(&part, outs))?;
                self.group(pool, image, (part.view(), epilogue), (group, &mut out[first..]));
            }
        }
        Ok(())
    }

    /// One group of channels; `out` starts at its first one.
    fn group(
        &self,
        pool: &Pool,
        image: &[f32],
        (right, epilogue): (PanelsView<'_>, Epilogue<'_>),
        (group, out): (usize, &mut [f32]),
    ) {
        let channels = self.in_channels / self.groups.max(1);
        let patches = Patches { conv: self, image, first: group * channels, channels };
        let left = match self.is_pointwise() {
            true => Left::Matrix(&image[group * channels..], self.in_channels),
            false => Left::Gathered(&patches),
        };
        let rows = self.batch * self.window.n_outputs();
        let product = Product { rows, left, right, epilogue, stride: self.out_channels };
        simd::multiply(pool, &product, out);
    }

    /// Whether each pixel of the output looks at the same pixel of the image and no other.
    fn is_pointwise(&self) -> bool {
        let window = &self.window;
        window.size == [1; 3] && window.stride == [1; 3] && window.input == window.output
    }
}

/// The pixels under the window of each pixel of the output.
struct Patches<'a> {
    conv: &'a Conv,
    image: &'a [f32],
    /// The first channel of the group, and how many it has.
    first: usize,
    channels: usize,
}

impl Rows for Patches<'_> {
    fn gather(&self, rows: Range<usize>, piece: Range<usize>, to: &mut [f32]) {
        let [depth, height, width] = self.conv.window.output;
        let first = rows.start;
        let (mut x, mut y) = (first % width, first / width % height);
        let (mut z, mut batch) =
            (first / (width * height) % depth, first / (width * height * depth));
        for to in to.chunks_exact_mut(piece.len()) {
            self.patch((batch, z, y, x), piece.clone(), to);
            x += 1;
            if x == width {
                (x, y) = (0, y + 1);
            }
            if y == height {
                (y, z) = (0, z + 1);
            }
            if z == depth {
                (z, batch) = (0, batch + 1);
            }
        }
    }
}

impl Patches<'_> {
    /// A piece of the patch of one pixel: the taps of one row of the window after the other.
    #[inline]
    fn patch(
        &self,
        (batch, z, y, x): (usize, usize, usize, usize),
        piece: Range<usize>,
        to: &mut [f32],
    ) {
        let window = &self.conv.window;
        let line = window.size[2] * self.channels;
        let mut k = piece.start;
        let mut to = to;
        while k < piece.end {
            let (row, at) = (k / line, k % line);
            let n = (line - at).min(piece.end - k);
            let (part, rest) = to.split_at_mut(n);
            let (tap_z, tap_y) = (row / window.size[1], row % window.size[1]);
            match (window.at(0, z, tap_z), window.at(1, y, tap_y)) {
                (Some(z), Some(y)) => {
                    let row = (batch * window.input[0] + z) * window.input[1] + y;
                    self.line(row * window.input[2], x, at, part);
                }
                _ => part.fill(0.),
            }
            (to, k) = (rest, k + n);
        }
    }

    /// A part of the taps of one row of the window, from number `at` of their channels on. `row` is
    /// the first pixel of the image's row.
    #[inline]
    fn line(&self, row: usize, x: usize, at: usize, to: &mut [f32]) {
        let window = &self.conv.window;
        let (channels, all) = (self.channels, self.conv.in_channels);
        let start = x * window.stride[2];
        let reach = (window.size[2] - 1) * window.dilation[2];
        let whole = start >= window.before[2]
            && start + reach < window.input[2] + window.before[2]
            && window.dilation[2] == 1
            && channels == all;
        if whole {
            let from = (row + start - window.before[2]) * channels + at;
            copy(&self.image[from..][..to.len()], to);
            return;
        }
        let (mut tap, mut at) = (at / channels, at % channels);
        let mut to = to;
        while !to.is_empty() {
            let n = (channels - at).min(to.len());
            let (part, rest) = to.split_at_mut(n);
            match window.at(2, x, tap) {
                Some(x) => {
                    let from = (row + x) * all + self.first + at;
                    copy(&self.image[from..][..n], part);
                }
                None => part.fill(0.),
            }
            (to, tap, at) = (rest, tap + 1, 0);
        }
    }
}

/// A copy that does not call out for a few floats.
#[inline]
fn copy(from: &[f32], to: &mut [f32]) {
    if to.len() >= 64 {
        return to.copy_from_slice(from);
    }
    let (from_eights, from_rest) = from.as_chunks::<8>();
    let (to_eights, to_rest) = to.as_chunks_mut::<8>();
    to_eights.iter_mut().zip(from_eights).for_each(|(to, from)| *to = *from);
    let (from_twos, from_rest) = from_rest.as_chunks::<2>();
    let (to_twos, to_rest) = to_rest.as_chunks_mut::<2>();
    to_twos.iter_mut().zip(from_twos).for_each(|(to, from)| *to = *from);
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
}
