//! PNG, through the `png` crate.
//!
//! The conversions between kinds of pixels follow `png_io.cc` and libpng.

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use super::paced_reader::{PacedReader, refusal};
use super::pixels::{MAX_ELEMENTS, Pixels};
use crate::prelude::*;

/// The bytes that a decoder takes for tables and what it unfolds at a time.
const DECODER_BYTES: usize = 256 << 10;

/// Decodes a picture to 8 bits, or 16 if `wide`, in so many channels; 0 for its own.
pub(super) fn decode(bytes: &[u8], channels: usize, wide: bool) -> Result<Pixels<u16>> {
    let wrong = |error| refusal("PNG", error);
    // Its tables, and chunks that it keeps as they are.
    let _decoder = Booked::new(bytes.len() + DECODER_BYTES)?;
    let limits = Limits { bytes: 4 * MAX_ELEMENTS };
    let mut decoder = Decoder::new_with_limits(PacedReader::new(bytes), limits);
    let info = decoder.read_header_info().map_err(wrong)?;
    let (width, height) = (info.width as usize, info.height as usize);
    if width.checked_mul(height).is_none_or(|n| n > MAX_ELEMENTS / 8) {
        return invalid!("an image of {width} by {height} is too large");
    }
    // Texts and colour profiles may unfold to any size, and nobody asks for them.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(wrong)?;
    let (stored, bits) = (reader.info().color_type, reader.info().bit_depth);
    let (color, depth) = reader.output_color_type();
    let channels = match (channels, stored) {
        (0, ColorType::Indexed) => color.samples(),
        (0, _) => stored.samples(),
        (n, _) => n,
    };
    let Some(size) = reader.output_buffer_size() else { return invalid!("Invalid PNG: its size") };
    // The samples as they are read, as numbers and as they are wanted, and rows of the decoder.
    let n_samples = width * height * color.samples().max(channels);
    let booked = Booked::new(size + 4 * n_samples + 64 * width)?;
    let mut buffer = vec![0; size];
    reader.next_frame(&mut buffer).map_err(wrong)?;
    // What follows the pixels must be sound up to the end.
    reader.finish().map_err(wrong)?;
    let is_wide = depth == BitDepth::Sixteen;
    let mut samples = Vec::with_capacity(if is_wide { size / 2 } else { size });
    for part in buffer.chunks(AT_ONCE) {
        pace(part.len())?;
        match is_wide {
            true => {
                samples.extend(part.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair)));
            }
            false => samples.extend(part.iter().map(|x| u16::from(*x))),
        }
    }
    // TensorFlow counts the file's bits, also where they become eight.
    let opaque = u16::MAX >> (16 - bits as u16);
    let mut data = Vec::with_capacity(samples.len() / color.samples() * channels);
    for part in samples.chunks(color.samples() * AT_ONCE) {
        pace(part.len())?;
        let start = data.len();
        arrange(part, (color.samples(), channels), opaque, &mut data);
        match (is_wide, wide) {
            (true, false) => data[start..].iter_mut().for_each(|x| *x >>= 8),
            (true, true) | (false, false) => {}
            (false, true) => data[start..].iter_mut().for_each(|x| *x *= 257),
        }
    }
    Ok(Pixels { height, width, channels, data, _booked: booked })
}

/// Appends pixels of `from` samples as pixels of `to`, where even numbers have an opacity at the
/// end.
fn arrange(samples: &[u16], (from, to): (usize, usize), opaque: u16, out: &mut Vec<u16>) {
    for pixel in samples.chunks_exact(from) {
        let opacity = if from.is_multiple_of(2) { pixel[from - 1] } else { opaque };
        match (from > 2, to > 2) {
            (false, false) => out.push(pixel[0]),
            (false, true) => out.extend([pixel[0]; 3]),
            (true, true) => out.extend(&pixel[..3]),
            (true, false) => out.push(gray([pixel[0], pixel[1], pixel[2]], opaque)),
        }
        if to.is_multiple_of(2) {
            out.push(opacity);
        }
    }
}

/// Libpng's grey of a colour.
fn gray([red, green, blue]: [u16; 3], opaque: u16) -> u16 {
    if red == green && red == blue {
        return red;
    }
    let sum = 9797 * u32::from(red) + 19234 * u32::from(green) + 3737 * u32::from(blue);
    let half = if opaque == u16::MAX { 16384 } else { 0 };
    ((sum + half) >> 15) as u16
}
