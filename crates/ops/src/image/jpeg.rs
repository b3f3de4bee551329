//! JPEG: baseline and progressive images with Huffman codes.
//!
//! Written for ourselves because TensorFlow decodes with libjpeg's fast transform by default, which
//! is up to twelve levels away from the accurate one that all crates have. The arithmetic of
//! transforms, upsampling and colours is libjpeg's (`jidctfst.c`, `jidctint.c`, `jdsample.c`,
//! `jdcolor.c`), so that the pixels are the same.

mod bits;
mod color;
mod encode;
mod header;
mod huffman;
mod idct;
mod reduced;
mod scan;
mod smooth;
mod standard;
mod upsample;

use bits::Next;
pub(super) use encode::{Style, XMP_MAX, encode};
use header::{Frame, Header};
pub(super) use idct::Dct;
use scan::Outcome;
use upsample::{Part, Size};

use super::pixels::{MAX_ELEMENTS, Pixels};
use crate::prelude::*;

/// How an image is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// 1 or 3; 0 for what the image has.
    pub(super) channels: usize,
    pub(super) dct: Dct,
    /// Whether chroma is interpolated rather than repeated.
    pub(super) fancy: bool,
    /// One part in 1, 2, 4 or 8 of the size.
    pub(super) ratio: usize,
    /// Whether a file that is cut off is taken as one that ends there.
    pub(super) recover: bool,
    /// How much of the rows must be there; the others are black.
    pub(super) fraction: f32,
    /// The part that is wanted, if not all.
    pub(super) window: Option<Window>,
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) y: usize,
    pub(super) x: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Decodes an image. Fails for what is no JPEG, is cut off or is too large; what is only damaged
/// gives what libjpeg makes of it.
pub(super) fn decode(bytes: &[u8], options: Options) -> Result<Pixels> {
    let mut header = Header::default();
    let mut at = header.read(bytes, Next::At(2), options.recover)?;
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    let channels = match options.channels {
        0 => frame.components.len().min(3),
        n => n,
    };
    let pixels = frame.width * frame.height * channels.max(frame.components.len());
    if pixels > MAX_ELEMENTS {
        return invalid!("an image of {} by {} is too large", frame.width, frame.height);
    }
    let size = Size::new(frame, options.ratio);
    let window = size.window(options.window)?;
    // Coefficients and their samples, the components in full size, and the pixels.
    let n_coefficients = scan::Planes::n_coefficients(frame);
    let n_pixels = frame.width * frame.height;
    let n_samples = n_pixels * (2 * frame.components.len() + 3 * channels);
    let booked = Booked::new(3 * n_coefficients + n_samples)?;
    let mut planes = scan::Planes::new(frame);
    let mut rows = size.height;
    while let Some(start) = at {
        match scan::decode((bytes, start), &header, &mut planes, options.recover)? {
            Outcome::Done(next) => at = header.read(bytes, next, options.recover)?,
            Outcome::CutOff(unit) => {
                rows = rows_before(&header, unit, (size, options.fancy))?;
                break;
            }
        }
    }
    let rows = rows.saturating_sub(window.y).min(window.height);
    if (rows as f32 / window.height as f32) < options.fraction.min(1.) {
        return invalid!("the image's data is cut off");
    }
    header.end();
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    let part = Part::new(frame, size, window);
    if smooth::is_open(frame) {
        for (i, component) in frame.components.iter().enumerate() {
            smooth::fill(&mut planes, frame, i, part.first_block(frame, component));
        }
    }
    let samples: Vec<Vec<u8>> = (0..frame.components.len())
        .map(|i| plane(frame, planes.coefficients(i), i, (options, part)))
        .collect();
    let mut data = color::convert(&header, frame, &samples, channels)?;
    data[rows * window.width * channels..].fill(0);
    Ok(Pixels { height: window.height, width: window.width, channels, data, _booked: booked })
}

/// The rows of pixels that are known when the file is cut off in a unit.
fn rows_before(header: &Header, unit: usize, (size, fancy): (Size, bool)) -> Result<usize> {
    let Some(frame) = header.frame.as_ref().filter(|frame| !frame.has_passes) else {
        return invalid!("the image's data is cut off");
    };
    let units = header.units(frame);
    let height = if units.blocks == 1 { frame.components[0].v } else { 1 };
    let rows = unit / units.across / height * size.unit_height(frame);
    // The last ones wait for those below them, if they are mixed with them.
    let waits = frame.components.iter().any(|c| size.mixes_rows(frame, c, fancy));
    Ok(rows.saturating_sub(if waits { frame.max_v } else { 0 }))
}

/// One component in the size of the part that is wanted.
fn plane(
    frame: &Frame,
    coefficients: &[[i16; 64]],
    number: usize,
    (options, part): (Options, Part),
) -> Vec<u8> {
    let component = &frame.components[number];
    let block = part.size.block_of(frame, component);
    // A component without a scan has no table and no coefficients.
    let table = component.quantization.unwrap_or([0; 64]);
    let samples = idct::plane(component, coefficients, &table, options.dct, block);
    part.of(frame, component, &samples, options.fancy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options {
        channels: 0,
        dct: Dct::Fast,
        fancy: true,
        ratio: 1,
        recover: false,
        fraction: 1.,
        window: None,
    };

    #[test]
    fn damaged_bytes_are_refused_and_never_panic() {
        let good: &[u8] = include_bytes!("../../../../testdata/images/small.jpg");
        assert!(decode(good, OPTIONS).is_ok());
        for end in 0..good.len() {
            // The last bytes are only the marker of the end.
            assert!(decode(&good[..end], OPTIONS).is_err() || end + 4 > good.len(), "{end}");
        }
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut bad = good.to_vec();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % bad.len();
                bad[at] = (seed >> 20) as u8;
            }
            let ratio = 1 << (seed >> 60 & 3);
            if let Ok(pixels) =
                decode(&bad, Options { ratio, recover: seed >> 59 & 1 == 1, ..OPTIONS })
            {
                assert_eq!(pixels.data.len(), pixels.height * pixels.width * pixels.channels);
            }
        }
    }
}
