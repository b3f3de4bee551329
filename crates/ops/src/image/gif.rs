//! GIF, through the `gif` crate.
//!
//! The way in which frames are laid over each other follows `gif_io.cc`.

use std::io::Read;

use gif::{ColorOutput, DecodeOptions, Decoder, MemoryLimit};

use super::paced_reader::{PacedReader, refusal};
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

/// A frame as the file has it: where it lies on the canvas, and its colours by number.
struct Layer {
    frame: gif::Frame<'static>,
    indices: BookedVec<u8>,
}

/// Decodes the first frame, or all of them.
pub(super) fn decode(bytes: &[u8], all: bool) -> Result<Frames> {
    // The blocks that the decoder keeps as they are.
    let _blocks = Booked::new(bytes.len())?;
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let limit = std::num::NonZeroU64::new(MAX_ELEMENTS as u64);
    options.set_memory_limit(limit.map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    // Whatever version a file says it has, it is read as the last one.
    let sound: &[u8] = b"GIF89a";
    let rest = bytes.get(sound.len()..).unwrap_or_default();
    let file = sound.chain(PacedReader::new(rest));
    let mut decoder = options.read_info(file).map_err(|error| refusal("GIF data", error))?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    // The picture is as large as the largest frames, whatever the file says of itself.
    let (mut width, mut height, mut held) = (0, 0, 0);
    let mut layers = BookedVec::new();
    loop {
        let is_first = layers.is_empty();
        let Some(frame) = as_far(next_frame(&mut decoder), is_first)? else { break };
        let n_indices = usize::from(frame.width) * usize::from(frame.height);
        let across = width.max(usize::from(frame.width));
        let down = height.max(usize::from(frame.height));
        let is_kept = all || is_first;
        let count = layers.len() + usize::from(is_kept);
        held += if is_kept { n_indices } else { 0 };
        let elements = (across * down * 3).saturating_mul(count);
        if elements == 0 || held > MAX_ELEMENTS || elements > MAX_ELEMENTS {
            return invalid!("a GIF of {across} by {down} with {count} frames is too large");
        }
        let indices = as_far(next_indices(&mut decoder, n_indices), is_first)?;
        let Some(indices) = indices else { break };
        (width, height) = (across, down);
        if is_kept {
            layers.push(Layer { frame, indices })?;
        }
    }
    let (size, count) = (width * height * 3, layers.len());
    let mut data = BookedVec::with_capacity(size * count)?;
    for layer in &*layers {
        pace(size)?;
        let Some(palette) = layer.frame.palette.as_ref().or(global.as_ref()) else {
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
        draw(layer, palette, &mut data[start..], (width, height))?;
    }
    if count == 0 {
        return invalid!("Invalid GIF data: no frames");
    }
    Ok(Frames { count, height, width, data })
}

/// Takes a mistake behind the first frame for the end of the file.
fn as_far<T>(read: Result<Option<T>>, is_first: bool) -> Result<Option<T>> {
    match read {
        Err(Error::InvalidArgument(_)) if !is_first => Ok(None),
        read => read,
    }
}

/// Reads where the next frame lies, and its colours; `None` at the end of the file.
fn next_frame(decoder: &mut Decoder<impl Read>) -> Result<Option<gif::Frame<'static>>> {
    let frame = decoder.next_frame_info().map_err(|error| refusal("GIF data", error))?;
    Ok(frame.cloned())
}

/// Reads what the frame shows, as numbers of its colours.
fn next_indices(decoder: &mut Decoder<impl Read>, n: usize) -> Result<Option<BookedVec<u8>>> {
    let mut indices = BookedVec::filled(0, n)?;
    decoder.read_into_buffer(&mut indices).map_err(|error| refusal("GIF data", error))?;
    Ok(Some(indices))
}

/// Draws a frame on a canvas of `width` by `height`. Fails for a colour that is not there.
fn draw(
    Layer { frame, indices }: &Layer,
    palette: &[u8],
    canvas: &mut [u8],
    (width, height): (usize, usize),
) -> Result<()> {
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    for (y, row) in indices.chunks_exact(usize::from(frame.width).max(1)).enumerate() {
        pace(row.len())?;
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
