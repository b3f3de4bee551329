//! Depthwise convolution of one row of pixels, several channels at once.
//!
//! Each element is one accumulator that starts from the bias (or 0) and takes one multiply-add for
//! each tap that lies in the image, in order: it does not depend on what is computed beside it.

use super::vector::Vector;
use super::{Activation, kernels};

/// One row of the output.
///
/// # Safety
/// `image` is good for `rows` rows of `width` pixels of `channels` floats, `row_step` floats apart.
/// `filter` is good for `rows * taps` times `channels` floats, `bias`, unless null, for `channels`,
/// and `out` for `out_width * channels`. There are at least `LANES` channels, and `inside` holds
/// only pixels whose taps all lie in a row of the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    image: *const f32,
    row_step: usize,
    rows: usize,
    width: usize,
    channels: usize,
    filter: *const f32,
    taps: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    bias: *const f32,
    out: *mut f32,
    out_width: usize,
    /// The first output whose taps all lie in the image, and how many there are.
    inside: (usize, usize),
    clamp: Option<(f32, f32)>,
}

/// How a window slides along a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Along {
    /// The pixels in a row of the image.
    pub(crate) width: usize,
    /// The taps of the window along a row.
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    /// What pads the row in front.
    pub(crate) before: usize,
}

/// The rows of an image that a row of the output looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    /// From the first of these rows on.
    pub(crate) image: &'a [f32],
    /// How far apart the rows are.
    pub(crate) step: usize,
    /// How many they are.
    pub(crate) count: usize,
}

/// Writes one row of a depthwise convolution.
///
/// # Panics
/// If a slice is too short for the sizes, or there are fewer channels than lanes.
pub(crate) fn depthwise_row(
    along: Along,
    lines: Lines<'_>,
    filter: &[f32],
    (bias, activation): (Option<&[f32]>, Activation),
    (channels, out): (usize, &mut [f32]),
) {
    let kernels = kernels();
    assert!(channels >= kernels.lanes);
    let Along { width, taps, stride, dilation, before } = along;
    let out_width = out.len() / channels;
    assert_eq!(out.len(), out_width * channels);
    assert!(filter.len() >= lines.count * taps * channels);
    assert!(bias.is_none_or(|bias| bias.len() >= channels));
    if lines.count > 0 {
        assert!(lines.image.len() >= (lines.count - 1) * lines.step + width * channels);
    }
    // Output `x` starts at `x * stride - before` and reaches `(taps - 1) * dilation` further.
    let first = before.div_ceil(stride);
    let reach = (taps - 1) * dilation;
    let end = (width + before).checked_sub(reach).map_or(0, |room| room.div_ceil(stride));
    let end = end.min(out_width);
    let row = Row {
        image: lines.image.as_ptr(),
        row_step: lines.step,
        rows: lines.count,
        width,
        channels,
        filter: filter.as_ptr(),
        taps,
        stride,
        dilation,
        before,
        bias: bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
        out: out.as_mut_ptr(),
        out_width,
        inside: (first.min(end), end.saturating_sub(first)),
        clamp: activation.clamp(),
    };
    // SAFETY: the assertions above are what `Row` asks for, and this machine has the kernels.
    unsafe { (kernels.depthwise)(&row) };
    if row.clamp.is_none() {
        activation.apply(out);
    }
}

/// Pixels that are computed at once.
const PIXELS: usize = 4;

/// Computes a row.
#[inline(always)]
pub(super) unsafe fn row<V: Vector>(row: &Row) {
    // SAFETY: the caller vouches for the row; all pixels are below `out_width`, and `inside` is as
    // the caller says.
    unsafe {
        let (first, count) = row.inside;
        for x in 0..first {
            edge::<V>(row, x);
        }
        let mut x = first;
        while x + PIXELS <= first + count {
            pixels::<V, PIXELS>(row, x);
            x += PIXELS;
        }
        while x < first + count {
            pixels::<V, 1>(row, x);
            x += 1;
        }
        for x in first + count..row.out_width {
            edge::<V>(row, x);
        }
    }
}

/// Neighbouring pixels whose taps all lie in the image.
#[inline(always)]
unsafe fn pixels<V: Vector, const X: usize>(row: &Row, x: usize) {
    // SAFETY: the caller vouches for the pixels; channels stay below `channels`, because the last
    // vector is moved back to end there.
    unsafe {
        let start = row.image.add((x * row.stride - row.before) * row.channels);
        let taps = (0, row.taps);
        let mut c = 0;
        while c + 2 * V::LANES <= row.channels {
            tile::<V, X, 2>(row, start, (x, c), taps);
            c += 2 * V::LANES;
        }
        while c < row.channels {
            let at = c.min(row.channels - V::LANES);
            tile::<V, X, 1>(row, start, (x, at), taps);
            c += V::LANES;
        }
    }
}

/// A pixel of whose taps some lie outside of the image.
#[inline(always)]
unsafe fn edge<V: Vector>(row: &Row, x: usize) {
    let at = |tap: usize| (x * row.stride + tap * row.dilation).checked_sub(row.before);
    let inside = |tap: &usize| at(*tap).is_some_and(|at| at < row.width);
    let first = (0..row.taps).find(inside).unwrap_or(row.taps);
    let end = (first..row.taps).find(|tap| !inside(tap)).unwrap_or(row.taps);
    let from = at(first).filter(|_| first < end).unwrap_or(0);
    // SAFETY: taps from `first` to `end` lie in the image; channels as in `pixels`.
    unsafe {
        let start = row.image.add(from * row.channels);
        let mut c = 0;
        while c < row.channels {
            let at = c.min(row.channels - V::LANES);
            tile::<V, 1, 1>(row, start, (x, at), (first, end));
            c += V::LANES;
        }
    }
}

/// `X` pixels times `N` vectors of channels, over the taps of a range, the first of which looks at
/// `start`.
#[inline(always)]
unsafe fn tile<V: Vector, const X: usize, const N: usize>(
    row: &Row,
    start: *const f32,
    (x, c): (usize, usize),
    (first, end): (usize, usize),
) {
    // SAFETY: the caller has checked pixels, channels and taps.
    unsafe {
        let mut sums = [[V::splat(0.); N]; X];
        if !row.bias.is_null() {
            for sums in &mut sums {
                for (n, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(row.bias.add(c + n * V::LANES));
                }
            }
        }
        let (pixel_step, tap_step) = (row.stride * row.channels, row.dilation * row.channels);
        for y in 0..row.rows {
            let mut from = start.add(y * row.row_step + c);
            let mut filter = row.filter.add((y * row.taps + first) * row.channels + c);
            for _ in first..end {
                for n in 0..N {
                    let weight = V::load(filter.add(n * V::LANES));
                    for x in 0..X {
                        let pixel = V::load(from.add(x * pixel_step + n * V::LANES));
                        sums[x][n] = pixel.times_plus(weight, sums[x][n]);
                    }
                }
                from = from.wrapping_add(tap_step);
                filter = filter.wrapping_add(row.channels);
            }
        }
        let out = row.out.add(x * row.channels + c);
        for x in 0..X {
            for n in 0..N {
                let mut sum = sums[x][n];
                if let Some((low, high)) = row.clamp {
                    sum = sum.at_least(V::splat(low)).at_most(V::splat(high));
                }
                sum.store(out.add(x * row.channels + n * V::LANES));
            }
        }
    }
}
