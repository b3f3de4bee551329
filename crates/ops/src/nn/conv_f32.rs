//! The convolution of `f32`, channels last, as a matrix product: a row for each pixel of the
//! output, a column for each of its channels.
//!
//! A window of one pixel reads the image itself; all others gather the pixels under the window
//! while the product runs.

use std::ops::Range;

use ::pool::Pool;
use kernels::{Epilogue, Form, Left, Matrix, PANEL, PanelsView, Product, Rows};
use smallvec::SmallVec;
use tensor::Handle;

use super::conv_kernel::Conv;
use crate::linalg::Panels;
use crate::op::Packed;
use crate::prelude::*;

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

/// A filter as panels, and what comes after the convolution with it.
#[derive(Clone, Copy)]
pub(crate) struct ConvFilter<'a> {
    pub(crate) panels: PanelsView<'a>,
    pub(crate) epilogue: Epilogue<'a>,
}

/// One group of channels, and its part of the filter.
#[derive(Clone, Copy)]
struct ConvGroup<'a> {
    number: usize,
    filter: ConvFilter<'a>,
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

    /// The floats of scratch memory that `run_f32` needs: for the filter of a group that does not
    /// start and end with a panel, as it was and packed anew.
    pub(crate) fn group_len(&self) -> usize {
        let (outs, inner) = self.group_size();
        let has_edge = self.groups > 1 && !outs.is_multiple_of(PANEL);
        if has_edge { inner * outs + PanelsView::len(inner, outs) } else { 0 }
    }

    /// The columns and rows of the filter of a group.
    fn group_size(&self) -> (usize, usize) {
        let groups = self.groups.max(1);
        (self.out_channels / groups, self.window.n_taps() * self.in_channels / groups)
    }

    /// Writes the convolution of `image` with a packed filter, and what comes after it.
    pub(crate) fn run_f32(
        &self,
        pool: &Pool,
        image: &[f32],
        filter: ConvFilter<'_>,
        (scratch, out): (&mut [f32], &mut [f32]),
    ) {
        if out.is_empty() {
            return;
        }
        if self.groups <= 1 {
            return self.group(pool, image, ConvGroup { number: 0, filter }, out);
        }
        let ConvFilter { panels: filter, epilogue } = filter;
        let (outs, inner) = self.group_size();
        for group in 0..self.groups {
            let first = group * outs;
            let epilogue = Epilogue {
                bias: epilogue.bias.map(|bias| &bias[first..]),
                residual: epilogue.residual.map(|residual| &residual[first..]),
                ..epilogue
            };
            let columns = first..first + outs;
            if let Some(part) = filter.columns(columns.clone()) {
                let filter = ConvFilter { panels: part, epilogue };
                self.group(pool, image, ConvGroup { number: group, filter }, &mut out[first..]);
            } else {
                let (part, panels) = scratch.split_at_mut(inner * outs);
                filter.unpack(columns, part);
                let part = PanelsView::pack(matrix(part, outs), panels);
                let filter = ConvFilter { panels: part, epilogue };
                self.group(pool, image, ConvGroup { number: group, filter }, &mut out[first..]);
            }
        }
    }

    /// One group of channels; `out` starts at its first one.
    fn group(&self, pool: &Pool, image: &[f32], group: ConvGroup<'_>, out: &mut [f32]) {
        let ConvGroup { number, filter: ConvFilter { panels, epilogue } } = group;
        let channels = self.in_channels / self.groups.max(1);
        let patches = Patches { conv: self, image, first: number * channels, channels };
        let left = match self.is_pointwise() {
            true => Left::Matrix(&image[number * channels..], self.in_channels),
            false => Left::Gathered(&patches),
        };
        let rows = self.batch * self.window.n_outputs();
        let product = Product { rows, left, right: panels, epilogue, stride: self.out_channels };
        kernels::multiply(pool, &product, out);
    }

    /// Returns whether each pixel of the output looks at the same pixel of the image and no other.
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
        let width = self.conv.window.output[2];
        let mut parts = SmallVec::new();
        let (mut row, mut to) = (rows.start, to);
        // The pixels of one row of the output look at the same rows of the image.
        while row < rows.end {
            let x = row % width;
            let n = (width - x).min(rows.end - row);
            self.parts(row / width, &piece, &mut parts);
            let (now, later) = to.split_at_mut(n * piece.len());
            for (i, to) in now.chunks_exact_mut(piece.len()).enumerate() {
                self.patch(x + i, &parts, to);
            }
            (to, row) = (later, row + n);
        }
    }
}

/// A part of a patch: some taps of one row of the window.
#[derive(Debug, Clone, Copy)]
struct ConvF32Part {
    /// The first pixel of the image's row; `None` in the padding.
    row: Option<usize>,
    /// The first element of the row of taps.
    at: usize,
    len: usize,
}

impl Patches<'_> {
    /// The parts of `piece` for the output's row number `line`, all images counted through.
    fn parts(&self, line: usize, piece: &Range<usize>, parts: &mut SmallVec<[ConvF32Part; 16]>) {
        let window = &self.conv.window;
        let [depth, height, _] = window.output;
        let (y, z, batch) = (line % height, line / height % depth, line / (height * depth));
        let taps = window.size[2] * self.channels;
        parts.clear();
        let mut k = piece.start;
        while k < piece.end {
            let (tap_row, at) = (k / taps, k % taps);
            let len = (taps - at).min(piece.end - k);
            let (tap_z, tap_y) = (tap_row / window.size[1], tap_row % window.size[1]);
            let row = match (window.at(0, z, tap_z), window.at(1, y, tap_y)) {
                (Some(z), Some(y)) => {
                    let row = (batch * window.input[0] + z) * window.input[1] + y;
                    Some(row * window.input[2])
                }
                _ => None,
            };
            parts.push(ConvF32Part { row, at, len });
            k += len;
        }
    }

    /// The patch of the output's pixel `x` of a row.
    #[inline]
    fn patch(&self, x: usize, parts: &[ConvF32Part], to: &mut [f32]) {
        let window = &self.conv.window;
        let start = x * window.stride[2];
        let reach = (window.size[2] - 1) * window.dilation[2];
        // Whether the taps of a row lie side by side in the image.
        let whole = start >= window.before[2]
            && start + reach < window.input[2] + window.before[2]
            && window.dilation[2] == 1
            && self.channels == self.conv.in_channels;
        let mut to = to;
        for part in parts {
            let (now, later) = to.split_at_mut(part.len);
            match part.row {
                None => now.fill(0.),
                Some(row) if whole => {
                    let from = (row + start - window.before[2]) * self.channels + part.at;
                    copy(&self.image[from..][..part.len], now);
                }
                Some(row) => self.taps(row, x, part.at, now),
            }
            to = later;
        }
    }

    /// Some taps of one row of the window, from number `at` of their channels on, one by one.
    fn taps(&self, row: usize, x: usize, at: usize, to: &mut [f32]) {
        let (channels, all) = (self.channels, self.conv.in_channels);
        let (mut tap, mut at, mut to) = (at / channels, at % channels, to);
        while !to.is_empty() {
            let n = (channels - at).min(to.len());
            let (now, later) = to.split_at_mut(n);
            match self.conv.window.at(2, x, tap) {
                Some(x) => {
                    let from = (row + x) * all + self.first + at;
                    copy(&self.image[from..][..n], now);
                }
                None => now.fill(0.),
            }
            (to, tap, at) = (later, tap + 1, 0);
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
