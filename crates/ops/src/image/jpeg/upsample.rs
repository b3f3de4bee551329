//! Components of fewer samples than the image has pixels, brought to its size.

use super::header::{Component, Frame};

/// A component in the size of the image.
pub(super) fn to_size(
    frame: &Frame,
    component: &Component,
    samples: &[u8],
    fancy: bool,
) -> Vec<u8> {
    let (width, stride) = (component.width, component.stride * 8);
    let row = |y: usize| &samples[y.min(component.height - 1) * stride..][..width];
    let across = frame.max_h.is_multiple_of(component.h).then(|| frame.max_h / component.h);
    let down = frame.max_v.is_multiple_of(component.v).then(|| frame.max_v / component.v);
    let smooth = fancy && width > 2;
    let mut out = Vec::with_capacity(frame.width * frame.height);
    let mut line: Vec<u8> = Vec::with_capacity(2 * width);
    for y in 0..frame.height {
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
                let from = row(y * component.v / frame.max_v);
                let at = |x: usize| from[(x * component.h / frame.max_h).min(width - 1)];
                line.extend((0..frame.width).map(at));
            }
        }
        out.extend_from_slice(&line[..frame.width]);
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
