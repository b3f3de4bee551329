//! Decodes JPEG files as libjpeg-turbo does, pixel for pixel, and encodes them: baseline and
//! progressive images with Huffman codes.
//!
//! A [`Decoder`] reads the header first and says how many bytes it will take, so that its caller
//! can book them before [`Decoder::decode`] takes them.
//!
//! Written for ourselves because TensorFlow decodes with libjpeg's fast transform by default, which
//! is up to twelve levels away from the accurate one that all crates have. The arithmetic of
//! transforms, upsampling and colours is libjpeg's (`jidctfst.c`, `jidctint.c`, `jdsample.c`,
//! `jdcolor.c`), so that the pixels are the same.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "samples and coefficients are converted as libjpeg converts them"
)]

mod bits;
mod color;
mod encode;
mod error;
mod header;
mod huffman;
mod idct;
mod reduced;
mod scan;
mod smooth;
mod standard;
mod upsample;

use bits::{Bits, Next};
use error::{ask, invalid};
use header::{Frame, Header};
use idct::Inverse;
use scan::Outcome;
use upsample::{Part, Size};

pub use encode::{Style, XMP_MAX, encode};
pub use error::{Error, Result};
pub use idct::Dct;

/// An image, row by row, channels last.
#[derive(Debug, Clone, Copy)]
pub struct Image<D> {
    /// The number of rows.
    pub height: usize,
    /// The number of pixels of a row.
    pub width: usize,
    /// The number of samples of a pixel.
    pub channels: usize,
    /// The image's samples.
    pub data: D,
}

/// The settings for decoding an image.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// 1 or 3; 0 for what the image has.
    pub channels: usize,
    /// The transform of its blocks.
    pub dct: Dct,
    /// `true` if chroma is interpolated rather than repeated.
    pub fancy: bool,
    /// One part in 1, 2, 4 or 8 of the size.
    pub ratio: usize,
    /// `true` if a file that is cut off is taken as one that ends there.
    pub recover: bool,
    /// The fraction of the rows that must be there; the others are black.
    pub fraction: f32,
    /// The part that is wanted, if not all.
    pub window: Option<Window>,
    /// The most samples that an image may have, however few bytes it came from.
    pub n_samples_max: usize,
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first row.
    pub y: usize,
    /// The first column.
    pub x: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
}

/// A file whose header was read: what is left is to decode its scans.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    options: Options,
    header: Header,
    /// The place where the data of the first scan starts, if there is one.
    at: Option<usize>,
    channels: usize,
    size: Size,
    window: Window,
    memory_bytes: usize,
}

impl<'a> Decoder<'a> {
    /// Reads the header. Fails for what is no JPEG, has no frame or is too large.
    pub fn new(bytes: &'a [u8], options: Options) -> Result<Self> {
        let mut header = Header::default();
        let at = header.read(bytes, Next::At(2), options.recover)?;
        let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
        let channels = match options.channels {
            0 => frame.components.len().min(3),
            n => n,
        };
        let pixels = frame.width * frame.height * channels.max(frame.components.len());
        if pixels > options.n_samples_max {
            return invalid!("an image of {} by {} is too large", frame.width, frame.height);
        }
        let size = Size::new(frame, options.ratio);
        let window = size.window(options.window)?;
        // Coefficients and their samples, the components in full size, and the pixels.
        let n_coefficients = scan::Planes::n_coefficients(frame);
        let n_pixels = frame.width * frame.height;
        let n_samples = n_pixels * (2 * frame.components.len() + 3 * channels);
        let memory_bytes = 3 * n_coefficients + n_samples;
        Ok(Self { bytes, options, header, at, channels, size, window, memory_bytes })
    }

    /// The bytes that [`Decoder::decode`] takes at most, those of the image included.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Decodes the image. Before each row of blocks or pixels it calls `go_on` with a measure of
    /// the work that comes next, and stops if that returns `false`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that is cut off; one that is only damaged gives what libjpeg
    /// makes of it. [`Error::Stopped`] if `go_on` said so.
    pub fn decode(self, go_on: &mut dyn FnMut(usize) -> bool) -> Result<Image<Vec<u8>>> {
        let Self { bytes, options, mut header, mut at, channels, size, window, .. } = self;
        let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
        let mut planes = scan::Planes::new(frame);
        let mut rows = size.height;
        while let Some(start) = at {
            let bits = Bits::new(bytes, start, options.recover);
            match scan::decode(bits, &header, &mut planes, go_on)? {
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
        let part = Part::new(frame, size, window, &options);
        if smooth::is_open(frame) {
            for (i, component) in frame.components.iter().enumerate() {
                let first = part.first_block(frame, component);
                smooth::fill(&mut planes, frame, i, first, go_on)?;
            }
        }
        let samples = (0..frame.components.len())
            .map(|i| plane(frame, &planes, i, part, go_on))
            .collect::<Result<Vec<Vec<u8>>>>()?;
        let mut data = color::convert(&header, frame, &samples, channels, go_on)?;
        data[rows * window.width * channels..].fill(0);
        Ok(Image { height: window.height, width: window.width, channels, data })
    }
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
    planes: &scan::Planes,
    number: usize,
    part: Part,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>> {
    let component = &frame.components[number];
    let block = part.size.block_of(frame, component);
    // A component without a scan has no table and no coefficients.
    let table = component.quantization.unwrap_or([0; 64]);
    let inverse = Inverse::new(&table, part.dct, block);
    let blocks = planes.coefficients(number);
    let mut samples = vec![0; blocks.len() * block * block];
    let rows = samples.chunks_exact_mut(component.stride * block * block);
    for (row, blocks) in rows.zip(blocks.chunks_exact(component.stride)) {
        ask(go_on, 64 * blocks.len())?;
        inverse.row(blocks, row);
    }
    part.of(frame, component, &samples, go_on)
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
        n_samples_max: 1 << 28,
    };

    fn decode(bytes: &[u8], options: Options) -> Result<Image<Vec<u8>>> {
        Decoder::new(bytes, options)?.decode(&mut |_| true)
    }

    #[test]
    fn decoding_stops_when_it_is_told_to_wherever_that_is() {
        let good: &[u8] = include_bytes!("../../../testdata/images/small.jpg");
        let (mut n_asked, mut n_samples) = (0, 0);
        let whole = Decoder::new(good, OPTIONS).unwrap().decode(&mut |n| {
            (n_asked, n_samples) = (n_asked + 1, n_samples + n);
            true
        });
        let image = whole.unwrap();
        assert!(n_samples >= image.data.len() && n_asked > image.height, "{n_asked}: {n_samples}");
        for last in 0..n_asked {
            let mut left = last;
            let stopped = Decoder::new(good, OPTIONS).unwrap().decode(&mut |_| {
                left = left.checked_sub(1).unwrap_or(usize::MAX);
                left != usize::MAX
            });
            assert_eq!(stopped.map(|_| ()), Err(Error::Stopped), "{last}");
            assert_eq!(left, usize::MAX, "it asks no more");
        }
    }

    #[test]
    fn damaged_bytes_are_refused_and_never_panic() {
        let good: &[u8] = include_bytes!("../../../testdata/images/small.jpg");
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
