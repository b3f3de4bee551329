//! Components of fewer samples than the image has pixels, brought to its size.

use super::header::{Component, Frame};

/// The size of a decoded image, which is the file's or half, a quarter or an eighth of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Samples that a block gives in each direction in components that are not subsampled.
    block: usize,
}

impl Size {
    /// The size of a frame decoded at one part in `ratio`, which is 1, 2, 4 or 8.
    pub(super) fn new(frame: &Frame, ratio: usize) -> Self {
        assert!(matches!(ratio, 1 | 2 | 4 | 8), "parts that blocks have");
        let (width, height) = (frame.width.div_ceil(ratio), frame.height.div_ceil(ratio));
        Self { width, height, block: 8 / ratio }
    }

    /// The samples that a block of a component gives: more where that spares to repeat them.
    pub(super) fn block_of(self, frame: &Frame, component: &Component) -> usize {
        let mut block = self.block;
        let fits = |most: usize, own: usize, block: usize| {
            (most * self.block).is_multiple_of(own * block * 2)
        };
        while block < 8
            && fits(frame.max_h, component.h, block)
            && fits(frame.max_v, component.v, block)
        {
            block *= 2;
        }
        block
    }
}

/// A component in the size of the image.
pub(super) fn to_size(
    (frame, size): (&Frame, Size),
    component: &Component,
    samples: &[u8],
    fancy: bool,
) -> Vec<u8> {
    let block = size.block_of(frame, component);
    let (h, v) = (component.h * block, component.v * block);
    let (max_h, max_v) = (frame.max_h * size.block, frame.max_v * size.block);
    let width = (frame.width * h).div_ceil(frame.max_h * 8);
    let height = (frame.height * v).div_ceil(frame.max_v * 8);
    let row = |y: usize| &samples[y.min(height - 1) * component.stride * block..][..width];
    let across = max_h.is_multiple_of(h).then(|| max_h / h);
    let down = max_v.is_multiple_of(v).then(|| max_v / v);
    let fancy = fancy && size.block > 1;
    let smooth = fancy && width > 2;
    let mut out = Vec::with_capacity(size.width * size.height);
    let mut line: Vec<u8> = Vec::with_capacity(2 * width);
    for y in 0..size.height {
        line.clear();
        match (across, down) {
            (Some(2), Some(1)) if smooth => smooth_row(row(y), &mut line),
            (Some(1), Some(2)) if fancy => {
                let (near, far, bias) = rows(row, y);
                let mix = |(a, b): (&u8, &u8)| ((3 * sum(*a) + sum(*b) + bias) >> 2) as u8;
                line.extend(near.iter().zip(far).map(mix));
            }
            (Some(2), Some(2)) if smooth => {
                let (near, far, _) = rows(row, y);
                smooth_rows(near, far, &mut line);
            }
            _ => {
                let from = row(y * v / max_v);
                let at = |x: usize| from[(x * h / max_h).min(width - 1)];
                line.extend((0..size.width).map(at));
            }
        }
        out.extend_from_slice(&line[..size.width]);
    }
    out
}

fn sum(x: u8) -> u32 {
    u32::from(x)
}

/// The row that output row `y` lies in, the one that it is nearer to than all others, and which way
/// halves are rounded.
fn rows<'a>(row: impl Fn(usize) -> &'a [u8], y: usize) -> (&'a [u8], &'a [u8], u32) {
    let near = y / 2;
    match y % 2 {
        0 => (row(near), row(near.saturating_sub(1)), 1),
        _ => (row(near), row(near + 1), 2),
    }
}

/// Twice as many samples: three parts of the nearer, one of the farther.
fn smooth_row(from: &[u8], to: &mut Vec<u8>) {
    let last = from.len() - 1;
    for (i, x) in from.iter().enumerate() {
        let x = sum(*x);
        let left = if i == 0 { x } else { (3 * x + sum(from[i - 1]) + 1) >> 2 };
        let right = if i == last { x } else { (3 * x + sum(from[i + 1]) + 2) >> 2 };
        to.extend([left as u8, right as u8]);
    }
}

/// The same in both directions.
fn smooth_rows(near: &[u8], far: &[u8], to: &mut Vec<u8>) {
    let last = near.len() - 1;
    let column = |i: usize| 3 * sum(near[i]) + sum(far[i]);
    for i in 0..=last {
        let x = column(i);
        let left = if i == 0 { 4 * x } else { 3 * x + column(i - 1) };
        let right = if i == last { 4 * x } else { 3 * x + column(i + 1) };
        to.extend([((left + 8) >> 4) as u8, ((right + 7) >> 4) as u8]);
    }
}
