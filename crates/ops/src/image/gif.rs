//! GIF, through the `gif` crate.
//!
//! How frames are laid over each other follows `gif_io.cc`.

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::pixels::MAX_ELEMENTS;
use crate::prelude::*;

/// Frames of red, green and blue.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) count: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) data: Vec<u8>,
}

/// Decodes the first frame, or all of them.
pub(super) fn decode(bytes: &[u8], all: bool) -> Result<Frames> {
    let wrong = |error| Error::InvalidArgument(format!("Invalid GIF data: {error}"));
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let limit = std::num::NonZeroU64::new(MAX_ELEMENTS as u64);
    options.set_memory_limit(limit.map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(bytes).map_err(wrong)?;
    let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    let size = width * height * 3;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let (mut data, mut count) = (Vec::new(), 0);
    while let Some(frame) = decoder.read_next_frame().map_err(wrong)? {
        if size == 0 || data.len() + size > MAX_ELEMENTS {
            return invalid!("a GIF of {width} by {height} with {count} frames is too large");
        }
        let Some(palette) = frame.palette.as_ref().or(global.as_ref()) else {
            return invalid!("Invalid GIF data: no colours");
        };
        // What a frame does not cover or leaves transparent is as it was before.
        let start = data.len();
        match start.checked_sub(size) {
            Some(last) => data.extend_from_within(last..),
            None => data.resize(size, 0),
        }
        let canvas = &mut data[start..];
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        for (y, row) in frame.buffer.chunks_exact(usize::from(frame.width).max(1)).enumerate() {
            for (x, index) in row.iter().enumerate() {
                let (x, y) = (left + x, top + y);
                let color = palette.get(usize::from(*index) * 3..).and_then(<[u8]>::first_chunk);
                let hidden = Some(*index) == frame.transparent || x >= width || y >= height;
                if let Some(color @ [_, _, _]) = color.filter(|_| !hidden) {
                    canvas[(y * width + x) * 3..][..3].copy_from_slice(color);
                }
            }
        }
        count += 1;
        if !all {
            break;
        }
    }
    if count == 0 {
        return invalid!("Invalid GIF data: no frames");
    }
    Ok(Frames { count, height, width, data })
}
