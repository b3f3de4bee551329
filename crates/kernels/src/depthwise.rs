//! Depthwise convolution of one row of pixels, several channels at once.
//!
//! Each element is one accumulator that starts from 0 and takes one multiply-add for each tap that
//! lies in the image, in order: it does not depend on what is computed beside it. The bias comes
//! last, so that a large one costs the sum none of its digits.

use std::ops::Range;

use super::vector::Vector;
use super::{Activation, Kernels, kernels};

/// One row of the output.
///
/// # Safety
/// `image` is good for `rows` rows of `width` pixels of `channels` floats, `row_step` floats apart.
/// `filter` is good for `rows * taps` times `channels` floats, `bias`, unless null, for `channels`,
/// and `out` for `out_width * channels`. There are at least `LANES` channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    image: *const f32,
    row_step: usize,
    rows: usize,
    width: usize,
    pub(super) channels: usize,
    filter: *const f32,
    taps: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    bias: *const f32,
    out: *mut f32,
    out_width: usize,
    clamp: Option<(f32, f32)>,
}

/// The movement of a window along a row.
#[derive(Debug, Clone, Copy)]
pub struct Along {
    /// The pixels in a row of the image.
    pub width: usize,
    /// The taps of the window along a row.
    pub taps: usize,
    /// The distance between windows.
    pub stride: usize,
    /// The distance between the taps of a window.
    pub dilation: usize,
    /// The padding in front of the row.
    pub before: usize,
}

/// The rows of an image that a row of the output looks at.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a> {
    /// From the first of these rows on.
    pub image: &'a [f32],
    /// The distance between the rows.
    pub step: usize,
    /// The number of rows.
    pub count: usize,
}

/// The filter of a depthwise convolution, and what comes after it.
#[derive(Debug, Clone, Copy)]
pub struct DepthwiseWeights<'a> {
    /// The channels of the image, and of the output.
    pub channels: usize,
    /// One float for each tap and channel.
    pub filter: &'a [f32],
    /// Added to each pixel.
    pub bias: Option<&'a [f32]>,
    /// The last step.
    pub activation: Activation,
}

/// The fewest channels of a row: the floats of the narrowest vector.
pub const LEAST_CHANNELS: usize = 8;

/// Writes one row of a depthwise convolution.
///
/// # Panics
/// If a slice is too short for the sizes, or there are fewer than `LEAST_CHANNELS`.
pub fn depthwise_row(
    along: Along,
    lines: Lines<'_>,
    weights: DepthwiseWeights<'_>,
    out: &mut [f32],
) {
    row_with(kernels(), along, lines, weights, out);
}

/// The same with kernels that this machine can run.
fn row_with(
    kernels: &Kernels,
    along: Along,
    lines: Lines<'_>,
    weights: DepthwiseWeights<'_>,
    out: &mut [f32],
) {
    let DepthwiseWeights { channels, filter, bias, activation } = weights;
    assert!(channels >= LEAST_CHANNELS);
    let Along { width, taps, stride, dilation, before } = along;
    let out_width = out.len() / channels;
    assert_eq!(out.len(), out_width * channels);
    assert!(filter.len() >= lines.count * taps * channels);
    assert!(bias.is_none_or(|bias| bias.len() >= channels));
    if lines.count > 0 {
        assert!(lines.image.len() >= (lines.count - 1) * lines.step + width * channels);
    }
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
        clamp: activation.clamp(),
    };
    // SAFETY: the assertions above are what `Row` asks for, and this machine has the kernels.
    unsafe { (kernels.depthwise)(&row) };
    if row.clamp.is_none() {
        // SAFETY: this machine has the kernels.
        unsafe { (kernels.activate)(activation, out) };
    }
}

/// Pixels that are computed at once: the images of most networks are 7 pixels wide, or that times
/// a power of two.
const PIXELS: usize = 7;

/// The most pixels of the image that these look at.
const MOST_REACH: usize = (PIXELS - 1) * 2 + 5;

/// Computes a row.
#[inline(always)]
pub(super) unsafe fn row<V: Vector>(row: &Row) {
    // SAFETY: the caller vouches for the row.
    unsafe {
        match (row.taps, row.stride, row.dilation) {
            (3, 1, 1) => pixels::<V, 3, 1>(row),
            (3, 2, 1) => pixels::<V, 3, 2>(row),
            (5, 1, 1) => pixels::<V, 5, 1>(row),
            (5, 2, 1) => pixels::<V, 5, 2>(row),
            _ => (0..row.out_width).for_each(|x| edge::<V>(row, x)),
        }
    }
}

/// A row for a window of `T` taps that slides by `S`: neighbouring pixels share what they load.
#[inline(always)]
unsafe fn pixels<V: Vector, const T: usize, const S: usize>(row: &Row) {
    let reach = (PIXELS - 1) * S + T;
    let mut x = 0;
    while x < row.out_width {
        let n = PIXELS.min(row.out_width - x);
        // The taps of these pixels in the image, counted from the first tap of the first.
        let first = row.before.saturating_sub(x * S).min(reach);
        let end = (row.width + row.before).saturating_sub(x * S).min(reach);
        let mut c = 0;
        while c < row.channels {
            let at = c.min(row.channels - V::LANES);
            // SAFETY: the pixels are below `out_width`, the taps from `first` to `end` lie in the
            // image, and the last vector of channels is moved back to end with them.
            unsafe {
                if first == 0 && end == reach && n == PIXELS {
                    several::<V, T, S, true>(row, x, n, at, first..end);
                } else {
                    several::<V, T, S, false>(row, x, n, at, first..end);
                }
            }
            c += V::LANES;
        }
        x += n;
    }
}

/// `n` pixels from `x` on times a vector of channels from `c` on. Unless `ALL` taps lie in the
/// image, only `taps` do.
#[inline(always)]
unsafe fn several<V: Vector, const T: usize, const S: usize, const ALL: bool>(
    row: &Row,
    x: usize,
    n: usize,
    c: usize,
    taps: Range<usize>,
) {
    // SAFETY: the caller has checked pixels, channels and taps; only taps that lie in the image are
    // read, so that the pointer before them is but a number.
    unsafe {
        let mut sums = [V::splat(0.); PIXELS];
        let pixel = (x * S).wrapping_sub(row.before).wrapping_mul(row.channels);
        let start = row.image.wrapping_add(pixel).wrapping_add(c);
        for y in 0..row.rows {
            let from = start.wrapping_add(y * row.row_step);
            let filter = row.filter.add(y * T * row.channels + c);
            // What lies outside of the image is zero.
            let mut pixels = [V::splat(0.); MOST_REACH];
            for tap in 0..(PIXELS - 1) * S + T {
                if ALL || taps.contains(&tap) {
                    pixels[tap] = V::load(from.wrapping_add(tap * row.channels));
                }
            }
            for t in 0..T {
                let weight = V::load(filter.add(t * row.channels));
                for x in 0..PIXELS {
                    sums[x] = pixels[x * S + t].times_plus(weight, sums[x]);
                }
            }
        }
        let out = row.out.add(x * row.channels + c);
        let bias = bias::<V>(row, c);
        for x in 0..PIXELS {
            if ALL || x < n {
                finish(row, sums[x].plus(bias), out.wrapping_add(x * row.channels));
            }
        }
    }
}

/// One pixel, of whose taps some may lie outside of the image.
#[inline(always)]
unsafe fn edge<V: Vector>(row: &Row, x: usize) {
    let at = |tap: usize| (x * row.stride + tap * row.dilation).checked_sub(row.before);
    let inside = |tap: &usize| at(*tap).is_some_and(|at| at < row.width);
    let first = (0..row.taps).find(inside).unwrap_or(row.taps);
    let end = (first..row.taps).find(|tap| !inside(tap)).unwrap_or(row.taps);
    let from = at(first).filter(|_| first < end).unwrap_or(0);
    // SAFETY: taps from `first` to `end` lie in the image; the last vector of channels is moved
    // back to end with them.
    unsafe {
        let start = row.image.add(from * row.channels);
        let mut c = 0;
        while c + 4 * V::LANES <= row.channels {
            one::<V, 4>(row, start, x, c, first..end);
            c += 4 * V::LANES;
        }
        while c < row.channels {
            let at = c.min(row.channels - V::LANES);
            one::<V, 1>(row, start, x, at, first..end);
            c += V::LANES;
        }
    }
}

/// One pixel times `N` vectors of channels, over some taps, the first of which looks at `start`.
#[inline(always)]
unsafe fn one<V: Vector, const N: usize>(
    row: &Row,
    start: *const f32,
    x: usize,
    c: usize,
    taps: Range<usize>,
) {
    // SAFETY: the caller has checked pixel, channels and taps.
    unsafe {
        let mut sums = [V::splat(0.); N];
        let step = row.dilation * row.channels;
        for y in 0..row.rows {
            let mut from = start.add(y * row.row_step + c);
            let mut filter = row.filter.add((y * row.taps + taps.start) * row.channels + c);
            for _ in taps.clone() {
                for n in 0..N {
                    let weight = V::load(filter.add(n * V::LANES));
                    sums[n] = V::load(from.add(n * V::LANES)).times_plus(weight, sums[n]);
                }
                from = from.wrapping_add(step);
                filter = filter.wrapping_add(row.channels);
            }
        }
        let out = row.out.add(x * row.channels + c);
        for n in 0..N {
            let bias = bias::<V>(row, c + n * V::LANES);
            finish(row, sums[n].plus(bias), out.add(n * V::LANES));
        }
    }
}

/// The bias of the channels from `c` on; -0 without one, which changes no sum.
#[inline(always)]
unsafe fn bias<V: Vector>(row: &Row, c: usize) -> V {
    // SAFETY: the caller has checked that the vector of channels lies in the bias.
    unsafe { if row.bias.is_null() { V::splat(-0.) } else { V::load(row.bias.add(c)) } }
}

/// Writes a vector of the result.
#[inline(always)]
unsafe fn finish<V: Vector>(row: &Row, sum: V, out: *mut f32) {
    // SAFETY: the caller has checked that the vector lies in the result.
    unsafe {
        let sum = match row.clamp {
            Some((low, high)) => sum.at_least(V::splat(low)).at_most(V::splat(high)),
            None => sum,
        };
        sum.store(out);
    }
}

#[cfg(test)]
mod tests;
