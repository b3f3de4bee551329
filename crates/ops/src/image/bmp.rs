//! BMP: uncompressed pictures of 8, 24 or 32 bits a pixel.
//!
//! Follows `decode_image_op.cc`.

use super::pixels::{MAX_ELEMENTS, Pixels};
use crate::prelude::*;

/// Decodes a picture in 3 or 4 channels; 0 for its own.
pub(super) fn decode(bytes: &[u8], channels: usize) -> Result<Pixels> {
    let at = |i: usize| bytes.get(i..)?.first_chunk().map(|b| i32::from_le_bytes(*b));
    let bits = bytes.get(28..).and_then(<[u8]>::first_chunk).map(|b| u16::from_le_bytes(*b));
    let (Some(start), Some(width), Some(height), Some(bits)) = (at(10), at(18), at(22), bits)
    else {
        return invalid!("Incomplete bmp content, requires at least 32 bytes");
    };
    let own = usize::from(bits) / 8;
    let channels = match channels {
        0 => own,
        3 | 4 => channels,
        _ => return invalid!("channels must be 0, 3 or 4 for BMP, got {channels}"),
    };
    if !matches!(own, 1 | 3 | 4) || !bits.is_multiple_of(8) {
        return invalid!("Number of channels must be 1, 3 or 4, was {own}");
    }
    let top_down = height < 0;
    let (Ok(start), Ok(width)) = (usize::try_from(start), usize::try_from(width)) else {
        return invalid!("a bmp with a negative width or offset");
    };
    let height = height.unsigned_abs() as usize;
    let elements = width.checked_mul(height).and_then(|n| n.checked_mul(own.max(channels)));
    if width == 0 || height == 0 || elements.is_none_or(|n| n > MAX_ELEMENTS) {
        return invalid!("a bmp of {width} by {height}");
    }
    // Rows end at multiples of four bytes, and the file with the last one.
    let row = (width * own).next_multiple_of(4);
    let Some(data) = bytes.get(start..).filter(|data| data.len() == row * height) else {
        return invalid!(
            "Incomplete bmp content: {} bytes where {} of a header and {height} rows of {row} \
             should be",
            bytes.len(),
            start
        );
    };
    let booked = Booked::new(width * height * channels)?;
    let mut pixels = Vec::with_capacity(width * height * channels);
    for y in 0..height {
        pace(4 * width)?;
        let y = if top_down { y } else { height - 1 - y };
        for pixel in data[y * row..][..width * own].chunks_exact(own) {
            let color = match *pixel {
                [b, g, r] => [r, g, b, 255],
                [b, g, r, a] => [r, g, b, a],
                _ => [pixel[0], pixel[0], pixel[0], 255],
            };
            pixels.extend(&color[..channels]);
        }
    }
    Ok(Pixels { height, width, channels, data: pixels, _booked: booked })
}
