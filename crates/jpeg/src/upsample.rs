//! Components of fewer samples than the image has pixels, brought to its size.

use super::header::{Component, Frame};
use super::{Dct, Options, Window};
use crate::error::{Result, ask, invalid};

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

impl Size {
    /// The rows of pixels that a row of units gives.
    pub(super) fn unit_height(self, frame: &Frame) -> usize {
        frame.max_v * self.block
    }

    /// Returns whether rows of a component are mixed with their neighbours.
    pub(super) fn mixes_rows(self, frame: &Frame, component: &Component, fancy: bool) -> bool {
        let (across, down) = self.steps(frame, component);
        let width = self.samples_across(frame, component, self.width);
        fancy
            && self.block > 1
            && down == Some(2)
            && (across == Some(1) || across == Some(2) && width > 2)
    }

    /// Returns how many pixels across and down a sample of a component is, where these are whole.
    fn steps(self, frame: &Frame, component: &Component) -> (Option<usize>, Option<usize>) {
        let block = self.block_of(frame, component);
        let step = |most: usize, own: usize| most.is_multiple_of(own).then(|| most / own);
        (
            step(frame.max_h * self.block, component.h * block),
            step(frame.max_v * self.block, component.v * block),
        )
    }

    /// The samples of a component under so many pixels.
    fn samples_across(self, frame: &Frame, component: &Component, width: usize) -> usize {
        let own = component.h * self.block_of(frame, component);
        (width * own).div_ceil(frame.max_h * self.block)
    }

    /// The part that is asked for. Fails if it is empty or not within the image.
    pub(super) fn window(self, asked: Option<Window>) -> Result<Window> {
        let all = Window { y: 0, x: 0, height: self.height, width: self.width };
        let window = asked.unwrap_or(all);
        let fits = |at: usize, size: usize, limit: usize| {
            size > 0 && at.checked_add(size).is_some_and(|end| end <= limit)
        };
        if !fits(window.y, window.height, self.height) || !fits(window.x, window.width, self.width)
        {
            return invalid!("Invalid JPEG data or crop window");
        }
        Ok(window)
    }
}

/// The part of an image that is decoded: its columns begin where a unit does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) size: Size,
    window: Window,
    /// The first unit's number, and its width in pixels.
    unit: usize,
    unit_width: usize,
    /// Set when columns are mixed as suits a narrow part rather than the whole image.
    is_narrow: bool,
    /// Set when chroma is interpolated rather than repeated.
    fancy: bool,
    /// The transform of its blocks.
    pub(super) dct: Dct,
}

impl Part {
    pub(super) fn new(frame: &Frame, size: Size, window: Window, options: &Options) -> Self {
        let &Options { fancy, dct, .. } = options;
        let alone = frame.components.len() == 1;
        let unit_width = size.block * if alone { 1 } else { frame.max_h };
        let unit = window.x / unit_width;
        let mut part = Self { size, window, unit, unit_width, is_narrow: false, fancy, dct };
        // One component that gets too narrow makes libjpeg choose anew for all.
        part.is_narrow = frame.components.iter().any(|c| {
            let whole = size.samples_across(frame, c, size.width);
            part.width_of(frame, c) < 2 && whole >= 2
        });
        part
    }

    /// The first column of blocks of a component.
    pub(super) fn first_block(self, frame: &Frame, component: &Component) -> usize {
        self.unit * if frame.components.len() == 1 { 1 } else { component.h }
    }

    /// The samples of a component in a row of the part.
    fn width_of(self, frame: &Frame, component: &Component) -> usize {
        let width = self.window.x - self.unit * self.unit_width + self.window.width;
        self.size.samples_across(frame, component, width)
    }

    /// A component in the size of the part.
    pub(super) fn of(
        self,
        frame: &Frame,
        component: &Component,
        samples: &[u8],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<u8>> {
        let (size, window) = (self.size, self.window);
        let block = size.block_of(frame, component);
        let (h, v) = (component.h * block, component.v * block);
        let (max_h, max_v) = (frame.max_h * size.block, frame.max_v * size.block);
        let width = self.width_of(frame, component);
        let first = self.unit * self.unit_width * h / max_h;
        let height = (frame.height * v).div_ceil(frame.max_v * 8);
        let row =
            |y: usize| &samples[y.min(height - 1) * component.stride * block + first..][..width];
        let (across, down) = size.steps(frame, component);
        let fancy = self.fancy && size.block > 1;
        let whole = size.samples_across(frame, component, size.width);
        let smooth = fancy && if self.is_narrow { width } else { whole } > 2;
        let mut out = Vec::with_capacity(window.width * window.height);
        let mut line: Vec<u8> = Vec::with_capacity(2 * width);
        for y in window.y..window.y + window.height {
            ask(go_on, 2 * width)?;
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
                    let end = window.x - self.unit * self.unit_width + window.width;
                    line.extend((0..end).map(at));
                }
            }
            let from = window.x - self.unit * self.unit_width;
            out.extend_from_slice(&line[from..][..window.width]);
        }
        Ok(out)
    }
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
