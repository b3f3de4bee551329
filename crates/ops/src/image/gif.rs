//! GIF, through the `gif` crate.
//!
//! The way in which frames are laid over each other follows `gif_io.cc`.

use std::io::Read as _;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::pixels::MAX_ELEMENTS;
use crate::prelude::*;

/// Frames of red, green and blue.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) count: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) data: BookedVec<u8>,
}

/// Decodes the first frame, or all of them.
pub(super) fn decode(bytes: &[u8], all: bool) -> Result<Frames> {
    let wrong = |error| Error::InvalidArgument(format!("Invalid GIF data: {error}"));
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let limit = std::num::NonZeroU64::new(MAX_ELEMENTS as u64);
    options.set_memory_limit(limit.map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    // Whatever version a file says it has, it is read as the last one.
    let sound: &[u8] = b"GIF89a";
    let rest = bytes.get(sound.len()..).unwrap_or_default();
    let mut decoder = options.read_info(sound.chain(rest)).map_err(wrong)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    // The picture is as large as the largest frames, whatever the file says of itself.
    let (mut width, mut height, mut held) = (0, 0, 0);
    let mut frames = Vec::new();
    let mut booked = Vec::new();
    loop {
        let frame = match decoder.read_next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            // What was read before the file breaks off counts.
            Err(_) if !frames.is_empty() => break,
            Err(error) => return Err(wrong(error)),
        };
        width = width.max(usize::from(frame.width));
        height = height.max(usize::from(frame.height));
        if all || frames.is_empty() {
            held += frame.buffer.len();
            booked.push(Booked::new(frame.buffer.len() + size_of::<gif::Frame<'_>>())?);
            frames.push(frame.clone());
        }
        let size = width * height * 3;
        if size == 0 || held > MAX_ELEMENTS || frames.len() * size > MAX_ELEMENTS {
            let count = frames.len();
            return invalid!("a GIF of {width} by {height} with {count} frames is too large");
        }
    }
    let (size, count) = (width * height * 3, frames.len());
    let mut data = BookedVec::with_capacity(size * count)?;
    for frame in &frames {
        pace(1 << 16)?;
        let Some(palette) = frame.palette.as_ref().or(global.as_ref()) else {
            return invalid!("Invalid GIF data: no colours");
        };
        // What a frame does not cover or leaves transparent is as it was before.
        let start = data.len();
        match start.checked_sub(size) {
            Some(last) => {
                data.resize(start + size, 0)?;
                data.copy_within(last..start, start);
            }
            None => data.resize(size, 0)?,
        }
        draw(frame, palette, &mut data[start..], (width, height))?;
    }
    if count == 0 {
        return invalid!("Invalid GIF data: no frames");
    }
    Ok(Frames { count, height, width, data })
}

/// Draws a frame on a canvas of `width` by `height`. Fails for a colour that is not there.
fn draw(
    frame: &gif::Frame<'_>,
    palette: &[u8],
    canvas: &mut [u8],
    (width, height): (usize, usize),
) -> Result<()> {
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    for (y, row) in frame.buffer.chunks_exact(usize::from(frame.width).max(1)).enumerate() {
        for (x, index) in row.iter().enumerate() {
            let (x, y) = (left + x, top + y);
            if Some(*index) == frame.transparent || x >= width || y >= height {
                continue;
            }
            let color = palette.get(usize::from(*index) * 3..).and_then(<[u8]>::first_chunk);
            let Some(color @ [_, _, _]) = color else {
                return invalid!("Invalid GIF data: colour {index} is not in the palette");
            };
            canvas[(y * width + x) * 3..][..3].copy_from_slice(color);
        }
    }
    Ok(())
}
